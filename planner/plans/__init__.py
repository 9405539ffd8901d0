"""What is bought, for which price, and how it is told."""
