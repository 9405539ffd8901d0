"""What the curator's commands do, one module for each."""
