"""Who a client is, and which session it gets; no sockets."""
