"""``exclude``: rules that drop trials by the fields they match."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scalevec.sweeps.errors import Problem, shown
from scalevec.sweeps.yaml_source import SweepSource

CELL_FIELDS = ("arm", "rung", "seed", "stage")


class Exclusion:
    """The rules of one sweep; remembers which of their values matched anything."""

    def __init__(self, rules: Sequence[Mapping[str, Sequence[Any]]]) -> None:
        self._rules = rules
        self._seen: list[dict[str, set[int]]] = [{name: set() for name in rule} for rule in rules]
        self._used = [False] * len(rules)

    def left(self, view: Mapping[str, Any], stage: str, seeds: tuple[int, ...]) -> tuple[int, ...]:
        """The ``seeds`` that no rule drops from the cell whose fields are ``view``."""
        dropped: set[int] = set()
        for position, rule in enumerate(self._rules if seeds else ()):
            cell = {**view, "stage": stage}
            matched = [self._matches(position, name, cell.get(name)) for name in rule if name != "seed"]
            gone = {seed for seed in seeds if "seed" not in rule or self._matches(position, "seed", seed)}
            if all(matched) and gone:
                self._used[position] = True
                dropped |= gone
        return tuple(seed for seed in seeds if seed not in dropped)

    def _matches(self, position: int, name: str, actual: Any) -> bool:
        hits = {i for i, value in enumerate(self._rules[position][name]) if _same(value, actual)}
        self._seen[position][name] |= hits
        return bool(hits)

    def problems(self, source: SweepSource) -> Iterator[Problem]:
        """Values and rules that matched no trial: most likely mistyped."""
        for position, rule in enumerate(self._rules):
            never = [
                (name, value)
                for name, values in rule.items()
                for i, value in enumerate(values)
                if i not in self._seen[position][name]
            ]
            for name, value in never:
                message = f"{shown(value)} matches no trial of the sweep"
                yield source.problem(("exclude", position, name), message)
            if not never and not self._used[position]:
                yield source.problem(("exclude", position), "matches no trial of the sweep")


def _same(first: Any, second: Any) -> bool:
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)
