"""Compare text that is kept in the repository with the same text remade now, perhaps on another processor."""

import re

_NUMBER = re.compile(r"(?<![\w.#])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?")


def difference_beyond_rounding(kept: str, remade: str) -> str:
    """Return where ``remade`` differs from ``kept`` by more than rounding; empty where it does not.

    The words must be the same, and so must whole numbers; a number with decimals may differ by one unit of
    its last written place, because the last bit of a sum decides how a number between two of them is rounded.
    """
    words, new_words = _NUMBER.split(kept), _NUMBER.split(remade)
    for word, new_word in zip(words, new_words, strict=False):
        if word != new_word:
            return f"the text was {word[-80:]!r} and is {new_word[-80:]!r}"
    if len(words) != len(new_words):
        return f"{len(words) - 1} numbers were kept, {len(new_words) - 1} are remade"
    pairs = zip(_NUMBER.findall(kept), _NUMBER.findall(remade), strict=True)
    return next((f"{number} became {new}" for number, new in pairs if not _close(number, new)), "")


def _close(number: str, new: str) -> bool:
    unit = max(_unit(number), _unit(new)) if {"."} & {*number, *new} else 0.0
    return abs(_value(number) - _value(new)) <= unit * (1 + 1e-6)


def _unit(number: str) -> float:
    """Return one unit of the last decimal: 0.01 of 2.50, 1e-6 of 8.9e-05; 0 of a whole number."""
    mantissa, _, exponent = number.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(10 ** (int(exponent or 0) - decimals)) if decimals else 0.0


def _value(number: str) -> float:
    return float(number.replace("−", "-").replace(",", ""))
