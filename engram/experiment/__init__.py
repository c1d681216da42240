"""Runs of a method on a stream: measuring them, keeping their results on disk, and running many of them at once."""
