"""What is known."""
