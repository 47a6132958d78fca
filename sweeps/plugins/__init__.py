"""Plugins: optimizers, schedules and laws of somebody else's package, found and read without running them."""
