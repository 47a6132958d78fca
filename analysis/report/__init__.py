"""What people read: text for a terminal, one HTML page."""
