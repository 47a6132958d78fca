"""Noise between seeds, clusters of dependent rows, inference on paired differences."""
