"""Commands that show what runs and what came of it."""
