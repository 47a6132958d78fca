"""Results from elsewhere: tables of other trackers, and what their columns mean here."""
