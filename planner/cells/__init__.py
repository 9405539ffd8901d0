"""The public domain as integers, and what its cells pay."""
