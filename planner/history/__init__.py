"""What is known: earlier releases, brought to the cells of a new question."""
