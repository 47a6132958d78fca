"""What is trained and how: configuration, transformer, scale vectors, accounting, training."""
