"""Attempts at a trial: their jobs, their events, whether to try again."""
