"""Random formulas: well-formed ones, and texts that are nearly or not at all one."""

import random

COLUMNS = ("N", "D", "width")
PARAMETERS = ("E", "A", "alpha", "b", "k")
_WORDS = ("1", "2.5", "0", "1e308", "exp", "log", "max", "positive", "start")
_TOKENS = (*COLUMNS, *PARAMETERS, *"+-*/^(),;=", *_WORDS)


def written(draw: random.Random, depth: int = 4) -> str:
    """A formula whose values are mostly finite."""
    if depth == 0 or draw.random() < 0.2:
        return draw.choice((*COLUMNS, *PARAMETERS, *PARAMETERS, f"{draw.uniform(0.1, 3):.2f}"))
    first, second = (written(draw, depth - 1) for _ in range(2))
    forms = ("({a} + {b})", "({a} - {b})", "{a}*{b}", "{a}/({b})", "({a})^{c}", "sqrt({a})")
    forms += ("exp(-{p}*log({v}))", "log(1 + exp({b}))", "sigmoid({a})", "max({a}, {b})", "min({a}, {b})")
    names = {"p": draw.choice(PARAMETERS), "v": draw.choice(COLUMNS), "c": draw.choice(("2", "0.5", "alpha"))}
    return draw.choice(forms).format(a=first, b=second, **names)


def garbled(draw: random.Random) -> str:
    """Any text of the formula's words, some of it deeply nested, endless or of other characters."""
    kind = draw.randrange(4)
    if kind == 0:
        return "".join(chr(draw.randrange(1, 0x3000)) for _ in range(draw.randrange(1, 40)))
    if kind == 1:
        return draw.choice("(-+") * draw.randrange(1, 900) + "N^A" * draw.randrange(1, 200)
    if kind == 2:
        text = written(draw)
        cut = draw.randrange(len(text))
        return text[:cut] + draw.choice(_TOKENS) + text[cut + draw.randrange(3) :]
    return " ".join(draw.choice(_TOKENS) for _ in range(draw.randrange(1, 60)))
