"""State trees, checkpoints on disk, and restoring what was saved."""
