"""The process that trains one trial."""
