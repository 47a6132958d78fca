"""Numbers as people read them: signs, counts, percentages, p-values."""


def signed(value: float) -> str:
    """A difference with its sign, ``+0.0123`` or ``−0.0123``."""
    return f"{value:+.4f}".replace("-", "−")


def span(interval: tuple[float, float]) -> str:
    """An interval of differences, ``−0.04 to +0.01``."""
    return f"{signed(interval[0])} to {signed(interval[1])}"


def percent(share: float) -> str:
    """``95 %``."""
    return f"{share * 100:g} %"


def count(value: float) -> str:
    """A count for people: 25.1k, 1.33M, 2.4B."""
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:g}"


def p_value(p: float | None) -> str:
    """A p-value as text, never ``0.000``."""
    if p is None:
        return "none"
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def joined(names: tuple[str, ...] | list[str], last: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``; with another word before the last."""
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def chosen_rows(where: str | None, left_out: int) -> list[str]:
    """The expression that chose rows and what it left out, as one line; none where nothing was chosen."""
    return [] if where is None else [f"rows: where {where} ({left_out} left out)"]


def is_loss(y: str) -> bool:
    """Whether the column ``y`` holds losses by its name: in nats a token, of which the lower is better."""
    return y.startswith("loss")
