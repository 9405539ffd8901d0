"""Functions in FROM; none knows another."""
