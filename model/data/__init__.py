"""Corpora: prepared once under their fingerprint, only read afterwards."""
