"""What follows a sweep while it runs: logs of other trackers."""
