"""How a corpus is prepared: units of work that processes share out, and that are kept once finished."""
