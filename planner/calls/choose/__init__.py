"""noisegate.choose: one of several analyses, without paying for the others."""
