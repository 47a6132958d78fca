"""The index over the run directories, derived from them."""
