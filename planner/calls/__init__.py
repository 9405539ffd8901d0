"""The functions of the schema noisegate in FROM; none knows another."""
