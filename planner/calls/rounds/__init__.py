"""noisegate.enlist, withdraw and release: one release for several analysts."""
