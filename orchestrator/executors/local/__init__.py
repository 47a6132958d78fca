"""Trials as processes on this machine."""
