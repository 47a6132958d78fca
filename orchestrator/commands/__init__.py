"""The commands of ``scalevec``, by what they do; each imports what it needs when it is called."""
