"""From a file to a valid sweep."""
