"""Tidy rows: read, checked, chosen, paired."""
