"""What a trial holds in memory, reckoned from its fields: nothing here loads torch."""
