"""Is a synthetic answer within tau of the truth? Yes or no, privately."""
