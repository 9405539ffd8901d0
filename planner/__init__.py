"""From SQL text to a plan to an answer, and what is kept of it."""

__product__ = "noisegate"
