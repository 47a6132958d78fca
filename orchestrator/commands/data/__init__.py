"""Commands on corpora, the index and the schema."""
