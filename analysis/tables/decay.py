"""The decay table: which scale vectors decay, by architecture, against the reference."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from scalevec.analysis.comparison.differences import CellMean
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.tidy import VECTOR_NORMS
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import count
from scalevec.analysis.tables import phrases, strategies
from scalevec.analysis.tables.arm_cells import Overall, holm_note, overall
from scalevec.analysis.tables.content import Table

POLICIES = ("all", "none", "input", "output")
_REFERENCE = {**phrases.bounds("difference", None, None), "p_holm": None, "pairs": 0}


def build(trials: ComparedTrials) -> Table:
    """A row for each architecture (and further setting) and arm, by decay policy, with a column by rung.

    Raises :class:`DataError` without policies.
    """
    trials.require("decay", "vector_decay", why="which scale vectors decay")
    settings = _settings(trials)
    parts = trials.split(settings)
    policies = {_policy(part, arm) for _, part in parts for arm in part.arms} - {phrases.NO_VECTORS}
    if len(policies) < 2:
        present = ", ".join(policies) or f"none that shares an architecture with {trials.reference}"
        raise DataError(f"table 'decay' needs arms with different decay policies; found: {present}")
    family = overall([part for _, part in parts])
    columns = _Columns(trials, {(row.trials, row.arm): row for row in family})
    lines = [
        (tuple(setting.values()), *columns.line(setting, part, arm))
        for setting, part in parts
        for arm in sorted(part.arms, key=lambda name: _order(_policy(part, name)))
    ]
    labels = (*settings, "decayed vectors", "arm")
    return Table(
        title="Weight decay of scale vectors",
        columns=(*labels, *columns.names),
        rows=tuple(texts for _, texts, _ in lines),
        numeric=(False,) * len(labels) + (True,) * len(columns.names),
        notes=(
            *phrases.loss_notes(trials),
            holm_note(len(family), "Difference"),
            *columns.notes,
            *phrases.convention_notes(trials),
        ),
        groups=("",) * len(labels) + columns.groups,
        breaks=phrases.breaks([values for values, _, _ in lines]),
        records=tuple(record for _, _, record in lines),
    )


def _settings(trials: ComparedTrials) -> list[str]:
    """The columns that tell the rows of one arm apart: the architecture, and settings that vary."""
    first = ["architecture"] if trials.has("architecture") else []
    return [*first, *(name for name in trials.varying_settings if name not in first)]


class _Columns:
    """What stands in a row behind its labels: the difference, overall and by rung, and norms of vectors."""

    def __init__(self, trials: ComparedTrials, rows: dict[tuple[ComparedTrials, str], Overall]) -> None:
        self.rows = rows
        sizes = dict.fromkeys((cell.rung, cell.n_tokens) for cell in trials.cells)
        has_budgets = len(sizes) > len({rung for rung, _ in sizes})
        names = {size: f"{size[0]}, {count(size[1])} tokens" if has_budgets else size[0] for size in sizes}
        self.sizes = names if len(sizes) > 1 else {}
        self.norms = [
            name for name in map(str, trials.rows) if name.startswith(VECTOR_NORMS) and trials.has(name)
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """The headings."""
        norms = (name.removeprefix(VECTOR_NORMS) for name in self.norms)
        return ("difference", "Holm p", "pairs", *self.sizes.values(), *norms)

    @property
    def groups(self) -> tuple[str, ...]:
        """What stands above the headings."""
        by_rung, norms = (
            ("by rung",) * len(self.sizes),
            ("root mean square of the vectors",) * len(self.norms),
        )
        return ("", "", "", *by_rung, *norms)

    @property
    def notes(self) -> list[str]:
        """What the columns are."""
        by_rung = "By rung: the difference there, not corrected; of the reference the loss."
        norms = "Norms: root mean square of the vectors in effect at the end, mean over trials."
        return [*([by_rung] if self.sizes else []), *([norms] if self.norms else [])]

    def line(
        self, setting: Mapping[str, str], part: ComparedTrials, arm: str
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """The row and the record of one arm of one setting; the reference has no difference."""
        row, policy = self.rows.get((part, arm)), _policy(part, arm)
        norms = {name: _mean(part.of_arm(arm)[name]) for name in self.norms}
        means = self._by_size(part, arm, row)
        show = phrases.difference if row else phrases.plus_minus
        by_rung = (show(means[size]) if size in means else "" for size in self.sizes)
        shown = ("" if norm is None else f"{norm:.3f}" for norm in norms.values())
        texts = row.texts() if row else ("reference", "", "")
        differences = means if row else {}
        record = {
            "architecture": setting.get("architecture", ""),
            "decayed_vectors": policy,
            "arm": arm,
            "is_reference": row is None,
            **{name: value for name, value in setting.items() if name != "architecture"},
            **(row.record() if row else _REFERENCE),
            **(strategies.fields_of(part, arm) if strategies.is_known(part) else {}),
            **self._records_by_rung(differences),
        }
        return (*setting.values(), policy, arm, *texts, *by_rung, *shown), record | norms

    def _records_by_rung(self, differences: Mapping[tuple[str, int], CellMean]) -> dict[str, Any]:
        records = (
            phrases.of_mean(f"difference_{name}", differences.get(size)) for size, name in self.sizes.items()
        )
        return {name: value for record in records for name, value in record.items()}

    def _by_size(
        self, part: ComparedTrials, arm: str, row: Overall | None
    ) -> dict[tuple[str, int], CellMean]:
        """The difference at each rung and budget; of the reference its loss."""
        means = row.cells if row else part.losses(arm)
        return {(cell.rung, cell.n_tokens): means[cell.key] for cell in part.cells if cell.key in means}


def _policy(part: ComparedTrials, arm: str) -> str:
    return phrases.decay_of(part.of_arm(arm))


def _order(policy: str) -> int:
    return POLICIES.index(policy) if policy in POLICIES else len(POLICIES)


def _mean(values: Any) -> float | None:
    numbers = values.dropna().to_numpy(float)
    return float(np.mean(numbers)) if len(numbers) else None
