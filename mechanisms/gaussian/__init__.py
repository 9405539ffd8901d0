"""Linear Gaussian mechanisms: what one costs, and what it tells."""
