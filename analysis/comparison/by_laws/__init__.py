"""Arms that have no trial in common, compared by the laws fitted to each."""
