"""What a design can detect before it is run, and the noise that is taken for it."""
