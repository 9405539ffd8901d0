"""Sockets, logins and processes: noisegate serve."""
