"""The memory of a trial, before it runs."""
