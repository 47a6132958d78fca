"""Ladders of sizes: the named presets, and the shape that an inline rung leaves to its defaults."""

from model.config import ConfigurationError, Shape

_TINY_HEAD_WIDTH = 16
_HEAD_WIDTH = 64
_WIDEST_TINY = 128


def default_heads(width: int) -> int:
    """Heads of 16 channels up to width 128, of 64 channels above.

    Raises ``ConfigurationError`` for a width that such heads do not divide.
    """
    head_width = _TINY_HEAD_WIDTH if width <= _WIDEST_TINY else _HEAD_WIDTH
    if width % head_width:
        raise ConfigurationError("width", width, f"a multiple of {head_width}, unless heads is given too")
    return width // head_width


def default_feed_forward(width: int) -> int:
    """8/3 of the width, rounded up to a multiple of 8.

    2/3 of 4 times the width keeps the parameters of a gated feed-forward equal to those of a plain one
    of 4 times the width (Shazeer 2020, arXiv 2002.05202; used by Llama, arXiv 2302.13971).
    """
    return -(-width // 3) * 8


def shape(
    width: int,
    layers: int,
    heads: int | None = None,
    kv_heads: int | None = None,
    feed_forward: int | None = None,
) -> Shape:
    """The shape of a rung with the defaults filled in. Raises ``ConfigurationError``."""
    heads = default_heads(width) if heads is None else heads
    return Shape(
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        feed_forward=default_feed_forward(width) if feed_forward is None else feed_forward,
    )


PRESETS: dict[str, Shape] = {
    "tiny-25k": shape(32, 2),
    "tiny-55k": shape(48, 2),
    "tiny-83k": shape(48, 3),
    "tiny-150k": shape(64, 3),
    "tiny-200k": shape(64, 4),
}
"""Named by their non-embedding matrix parameters; sizes at which a laptop shows something honest."""
