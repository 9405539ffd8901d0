"""The PostgreSQL protocol as bytes: messages, framing, states and value formats. No sockets, no waiting."""
