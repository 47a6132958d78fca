"""Tuned fields: grids, choices, checks of carried values."""
