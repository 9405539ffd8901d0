"""Figures, measured side by side in one run: `python -m benchmarks`, or one of its modules."""
