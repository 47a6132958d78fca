"""Names too long for a figure, a table or a line, shortened in the middle; each stays told apart."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

LONGEST_NAME = 30


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


def shortened_in(value: Any, names: Mapping[str, str]) -> Any:
    """``value``, text or what holds text, with the short one for each of ``names`` within it."""
    if isinstance(value, str):
        for name in sorted(names, key=len, reverse=True):
            value = value.replace(name, names[name])
        return value
    if isinstance(value, pd.DataFrame):
        columns = [name for name in ("arm", "rung") if name in value]
        frame = value.assign(
            **{name: value[name].map(lambda cell: names.get(cell, cell)) for name in columns}
        )
        frame.attrs = shortened_in(value.attrs, names)
        return frame
    if isinstance(value, Mapping):
        return {key: shortened_in(inner, names) for key, inner in value.items()}
    return (
        type(value)(shortened_in(inner, names) for inner in value)
        if isinstance(value, list | tuple)
        else value
    )


def footnotes(names: Mapping[str, str]) -> list[str]:
    """The whole name of each that is shortened, a sentence each."""
    return [f"{short} stands for {name}." for name, short in names.items()]
