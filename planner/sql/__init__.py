"""From text to what is asked of the rows."""
