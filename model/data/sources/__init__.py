"""Where the documents of a corpus come from."""
