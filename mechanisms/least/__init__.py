"""The least information that meets accuracy targets, given what is known."""
