"""What a step takes besides its arithmetic: compiled blocks, batches, what is read of it, its time."""
