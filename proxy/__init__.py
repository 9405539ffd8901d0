"""How people reach the gate: the DB-API module, the command line, and later the wire server."""

__product__ = "noisegate"
