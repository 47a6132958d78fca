"""Numbers and names as people read them: signs, counts, percentages, p-values, long names shortened."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from scalevec.analysis.options import LOSSES, UNITS, Loss, Residual, Unit

LONGEST_NAME = 30
"""Longer names are shortened in the middle, so that each stays told apart."""


def loss_name(y: str, unit: Unit) -> str:
    """What the column ``y`` is called in text: ``loss`` of known unit is that of the test split."""
    return "test loss" if y == "loss" and unit != "loss" else y


def unit_of(y: str, unit: Unit) -> str:
    """The unit of the column ``y`` as text; empty where it is not known."""
    return UNITS[unit] if is_loss(y) else ""


def named_with_unit(y: str, unit: Unit) -> str:
    """What the column ``y`` is called with its unit in parentheses, ``test loss (nats/token)``."""
    name = unit_of(y, unit)
    return f"{loss_name(y, unit)} ({name})" if name else loss_name(y, unit)


def criterion(loss: Loss, delta: float, residual: Residual) -> str:
    """What a fit minimises."""
    return LOSSES[loss] + (f" with delta {delta:g}" if loss == "huber" else "") + f" on {residual} residuals"


def signed(value: float, beside: Sequence[float] | None = None) -> str:
    """A difference with its sign, ``+0.0123`` or ``−0.0123``.

    It has two digits, ``+1.2e−05``, where four decimals of it and of what is ``beside`` it would be zeros.
    """
    # Below 1e-12 stands what is left of equal numbers.
    form = "+.1e" if 1e-12 < max(map(abs, (value, *(beside or ())))) < 5e-5 else "+.4f"
    return f"{value:{form}}".replace("-", "−")


def span(interval: tuple[float, float]) -> str:
    """An interval of differences, ``−0.04 to +0.01``."""
    return f"{signed(interval[0], interval)} to {signed(interval[1], interval)}"


def limits(interval: tuple[float, float], form: str) -> str:
    """An interval with its ends in the format ``form``, ``0.98 to 1.02``."""
    return f"{interval[0]:{form}} to {interval[1]:{form}}"


def percent(share: float) -> str:
    """``95 %``."""
    return f"{share * 100:g} %"


def count(value: float) -> str:
    """A count for people: 25.1k, 1.33M, 2.4B."""
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if float(f"{value:.3g}") >= size:  # 999,999 is 1M, not 1e+03k
            return f"{value / size:.3g}{suffix}"
    return f"{value:g}"


def plural(number: int, noun: str) -> str:
    """A number with its noun, ``1 pair`` or ``3 pairs``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def degrees(df: float) -> str:
    """Degrees of freedom, ``1 degree of freedom`` or ``3.2 degrees of freedom``."""
    shown = f"{df:.1f}".removesuffix(".0")
    return f"{shown} degree{'' if shown == '1' else 's'} of freedom"


def p_value(p: float | None) -> str:
    """A p-value as text, never ``0.000``."""
    if p is None:
        return "none"
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def joined(names: tuple[str, ...] | list[str], last: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``; with another word before the last."""
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def aligned(rows: Sequence[Sequence[str]], to_the_left: Collection[int]) -> list[str]:
    """Return ``rows`` as lines in columns, those ``to_the_left`` (by number) flush left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        set_flush = (c.ljust(w) if at in to_the_left else c.rjust(w) for at, (c, w) in cells)
        lines.append("  ".join(set_flush).rstrip())
    return lines


def fitted(
    columns: Mapping[str, Sequence[str]],
    to_the_left: Collection[str],
    spare: Sequence[str] = (),
    width: int | None = None,
) -> list[str]:
    """Return a table of ``columns``, each below its name, aligned as by :func:`aligned`.

    Beyond ``width`` characters it does without those that it can ``spare``, whole ones, the first first.
    """
    shown, spare = {name: [name, *cells] for name, cells in columns.items()}, list(spare)
    while True:
        left = [at for at, name in enumerate(shown) if name in to_the_left]
        lines = aligned(list(zip(*shown.values(), strict=True)), left)
        if not spare or width is None or max(map(len, lines)) <= width:
            return lines
        shown.pop(spare.pop(0), None)


def chosen_rows(where: str | None, left_out: int) -> list[str]:
    """The expression that chose rows and what it left out, as one line; none where nothing was chosen."""
    number = f" ({left_out} left out)" if left_out else ""
    return [] if where is None else [f"rows: where {where}{number}"]


def is_loss(y: str) -> bool:
    """Whether the column ``y`` holds losses by its name: in nats/token, of which the lower is better."""
    return y.startswith("loss")


def equal_optima_warning(ranges: Mapping[str, tuple[float, float]]) -> list[str]:
    """A warning where ``ranges`` names parameters that fit equally well from their least to their most."""
    if not ranges:
        return []
    between = [f"{name} between {_told_apart(low, high)}" for name, (low, high) in ranges.items()]
    return [
        f"the optimum is not unique: {joined(between)} fit equally well; shown is the one of them with the "
        "least sum of squared residuals"
    ]


def _told_apart(low: float, high: float) -> str:
    """Both numbers with as many digits as tell them apart, at least three."""
    pairs = [(f"{low:#.{digits}g}", f"{high:#.{digits}g}") for digits in range(3, 9)]
    return " and ".join(next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1]))


def few(names: Sequence[str], most: int = 6) -> str:
    """The first ``most`` of ``names``, and how many more there are."""
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return "; ".join([*names[:most], *more])


def shortened(values: Sequence[object], most: int = 5) -> str:
    """The first of ``values`` as text, and how many more there are."""
    shown = [str(value)[:40] for value in values[:most]]
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def short_names(names: Iterable[object]) -> dict[str, str]:
    """What is shown for each of ``names`` that is longer than :data:`LONGEST_NAME`."""
    distinct = list(dict.fromkeys(map(str, names)))
    shown: dict[str, str] = {}
    for name in filter(lambda name: len(name) > LONGEST_NAME, distinct):
        short, number = f"{name[:13]}...{name[-14:]}", 1
        while short in distinct or short in shown.values():
            number += 1
            short = f"{name[:11]}...{name[-11:]} #{number}"
        shown[name] = short
    return shown


def shortened_in(value: Any, names: Mapping[str, str], *, whole: bool = False) -> Any:
    """``value``, text or what holds text, with the short one for each of ``names`` within it.

    With ``whole`` only a text that is a name is replaced.
    """
    if isinstance(value, str) and whole:
        return names.get(value, value)
    if isinstance(value, str):
        for name in sorted(names, key=len, reverse=True):
            value = value.replace(name, names[name])
        return value
    import pandas as pd

    if isinstance(value, pd.DataFrame):
        frame = value.replace({name: dict(names) for name in ("arm", "rung") if name in value})
        frame.attrs = shortened_in(value.attrs, names, whole=whole)
        return frame
    if isinstance(value, Mapping):
        return {key: shortened_in(inner, names, whole=whole) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(shortened_in(inner, names, whole=whole) for inner in value)
    return value


def footnotes(names: Mapping[str, str]) -> list[str]:
    """The whole name of each that is shortened, a sentence each."""
    return [f"{short} stands for {name}." for name, short in names.items()]
