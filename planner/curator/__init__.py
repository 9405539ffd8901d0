"""Commands for the curator, one a module."""
