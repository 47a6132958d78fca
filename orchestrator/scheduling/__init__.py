"""Which trial runs next, and in which slot."""
