"""Trained models in the formats of others."""
