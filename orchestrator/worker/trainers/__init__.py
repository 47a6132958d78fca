"""What trains in an attempt at a trial: our own loop, or other people's code."""
