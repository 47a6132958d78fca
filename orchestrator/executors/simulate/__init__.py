"""Trials drawn from a planted law."""
