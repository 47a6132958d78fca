"""What a trial holds in memory, reckoned from its fields, and what there is here: nothing loads torch."""
