"""One client's conversation: messages in, bytes out; no sockets."""
