"""The state of a run on disk."""
