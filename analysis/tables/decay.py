"""The decay table: which scale vectors decay, by architecture, against the reference."""

from typing import Any

import numpy as np

from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.pairs import VECTOR_NORMS
from scalevec.analysis.errors import DataError
from scalevec.analysis.tables import phrases, strategies
from scalevec.analysis.tables.arm_cells import Overall, holm_note, overall
from scalevec.analysis.tables.content import Table

POLICIES = ("all", "none", "input", "output")
_REFERENCE = {**phrases.bounds("difference", None, None), "p_holm": None, "pairs": 0}


def build(trials: ComparedTrials) -> Table:
    """A row for each architecture and arm, by decay policy. Raises :class:`DataError` without policies."""
    trials.require("decay", "vector_decay", why="which scale vectors decay")
    parts = trials.split(["architecture"] if trials.has("architecture") else [])
    policies = {_policy(part, arm) for _, part in parts for arm in part.arms} - {phrases.NO_VECTORS}
    if len(policies) < 2:
        present = ", ".join(policies) or f"none that shares an architecture with {trials.reference}"
        raise DataError(f"table 'decay' needs arms with different decay policies; found: {present}")
    rows = {(row.trials, row.arm): row for row in overall([part for _, part in parts])}
    norms = [name for name in map(str, trials.rows) if name.startswith(VECTOR_NORMS) and trials.has(name)]
    lines = [
        _line(setting.get("architecture", ""), part, arm, rows.get((part, arm)), norms)
        for setting, part in parts
        for arm in sorted(part.arms, key=lambda name: _order(_policy(part, name)))
    ]
    without = 0 if any(record["architecture"] for _, record in lines) else 1
    labels = ("architecture", "decayed vectors", "arm")[without:]
    numbers = ("difference", "Holm p", "pairs")
    norms_note = "Norms: root mean square of the vectors in effect at the end, mean over trials."
    return Table(
        title="Weight decay of scale vectors",
        columns=(*labels, *numbers, *(name.removeprefix(VECTOR_NORMS) for name in norms)),
        rows=tuple(texts[without:] for texts, _ in lines),
        numeric=(False,) * len(labels) + (True,) * (len(numbers) + len(norms)),
        notes=(
            *phrases.loss_notes(trials),
            holm_note(len(rows), "Difference"),
            *([norms_note] if norms else []),
            *phrases.convention_notes(trials),
        ),
        groups=("",) * len((*labels, *numbers)) + ("root mean square of the vectors",) * len(norms),
        breaks=phrases.breaks([record["architecture"] for _, record in lines]),
        records=tuple(record for _, record in lines),
    )


def _line(
    architecture: str, part: ComparedTrials, arm: str, row: Overall | None, norms: list[str]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The row and the record of one arm of one architecture; ``row`` is None for the reference."""
    policy = _policy(part, arm)
    sizes = {name: _mean(part.of_arm(arm)[name]) for name in norms}
    record = {
        "architecture": architecture,
        "decayed_vectors": policy,
        "arm": arm,
        "is_reference": row is None,
    }
    record |= row.record() if row else _REFERENCE
    record |= strategies.fields_of(part, arm) if strategies.is_known(part) else {}
    texts = row.texts() if row else ("reference", "", "")
    shown = ("" if size is None else f"{size:.3f}" for size in sizes.values())
    return (architecture, policy, arm, *texts, *shown), record | sizes


def _policy(part: ComparedTrials, arm: str) -> str:
    return phrases.decay_of(part.of_arm(arm))


def _order(policy: str) -> int:
    return POLICIES.index(policy) if policy in POLICIES else len(POLICIES)


def _mean(values: Any) -> float | None:
    numbers = values.dropna().to_numpy(float)
    return float(np.mean(numbers)) if len(numbers) else None
