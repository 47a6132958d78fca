"""Trials that other people's code trains: what is run, on what, and how its results are read."""
