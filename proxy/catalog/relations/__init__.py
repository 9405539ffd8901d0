"""The tables and functions of PostgreSQL's catalog, filled from the policy."""
