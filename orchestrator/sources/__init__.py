"""Where analysis finds its rows: a sweep or a table."""
