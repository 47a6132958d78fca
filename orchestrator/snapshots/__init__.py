"""The code that trials run from, kept beside them."""
