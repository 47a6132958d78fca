"""Commands that fit, compare and draw."""
