"""What is kept: run directories, which are the truth, and the index over them, which can be rebuilt."""
