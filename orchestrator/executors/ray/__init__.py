"""Trials as Ray tasks."""
