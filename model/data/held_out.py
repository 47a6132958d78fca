"""How much of a corpus is held out."""

HELD_OUT_SHARE, LARGEST_HELD_OUT_SHARE = 0.02, 0.10
"""Of all that validation and test get each: at least, and at most where that is little."""
WANTED_HELD_OUT, LARGEST_HELD_OUT = 500_000, 16_000_000
"""Tokens of each: towards so many a small corpus gives a larger share, and no corpus gives more."""


def held_out(size: float, per_token: float = 1.0) -> float:
    """How much of ``size`` validation and test get each; ``per_token`` is what a token takes in its unit."""
    of_small = min(LARGEST_HELD_OUT_SHARE * size, WANTED_HELD_OUT * per_token)
    return min(max(HELD_OUT_SHARE * size, of_small), LARGEST_HELD_OUT * per_token)
