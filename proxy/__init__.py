"""How people reach the gate: Python, the command line and the PostgreSQL protocol."""

__product__ = "noisegate"
