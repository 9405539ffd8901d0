"""Exact random draws, and what they cost."""
