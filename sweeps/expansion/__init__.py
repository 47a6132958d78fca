"""From a sweep to its trials."""
