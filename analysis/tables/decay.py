"""The decay table: which scale vectors decay, by architecture, against the reference."""

from typing import Any

import numpy as np

from analysis.data import DataError
from analysis.pairs import VECTOR_NORMS
from analysis.tables import phrases, strategies
from analysis.tables.content import Table
from analysis.tables.family import Overall, holm_note, overall
from analysis.tables.question import Question

POLICIES = ("all", "none", "input", "output")


def build(question: Question) -> Table:
    """A row for each architecture and arm, by decay policy. Raises :class:`DataError` without policies."""
    why = "which scale vectors decay"
    question.require("decay", "vector_decay", why=why)
    parts = question.split(["architecture"] if question.has("architecture") else [])
    policies = {_policy(part, arm) for _, part in parts for arm in part.arms} - {phrases.NO_VECTORS}
    if len(policies) < 2:
        found = ", ".join(policies) or f"none that shares an architecture with {question.reference}"
        raise DataError(f"table 'decay' needs arms with different decay policies; found: {found}")
    rows = overall([part for _, part in parts])
    norms = [name for name in question.trials.columns if name.startswith(VECTOR_NORMS) and question.has(name)]
    names = [setting.get("architecture", "") for setting, _ in parts]
    lines = [
        line
        for name, (_, part) in zip(names, parts, strict=True)
        for line in _lines(name, part, [row for row in rows if row.question is part], norms)
    ]
    with_architecture = any(names)
    columns = ("architecture",) * with_architecture + (
        "decayed vectors",
        "arm",
        "difference",
        "Holm p",
        "pairs",
    )
    n_before = len(columns) - 3
    return Table(
        title="Weight decay of scale vectors",
        columns=(*columns, *(name.removeprefix(VECTOR_NORMS) for name in norms)),
        rows=tuple(line[0 if with_architecture else 1 :] for line, _ in lines),
        numeric=tuple(n >= n_before for n in range(len(columns) + len(norms))),
        notes=(
            *phrases.loss_notes(question),
            holm_note(len(rows), "Difference"),
            *(
                ["Norms: root mean square of the vectors in effect at the end, mean over trials."]
                if norms
                else []
            ),
            *phrases.convention_notes(question),
        ),
        groups=("",) * len(columns) + ("root mean square of the vectors",) * len(norms),
        breaks=phrases.breaks([{"architecture": line[0]} for line, _ in lines]),
        records=tuple(record for _, record in lines),
    )


def _lines(
    architecture: str, part: Question, rows: list[Overall], norms: list[str]
) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """The row and the record of each arm of one architecture."""
    found = {row.arm: row for row in rows}
    lines = []
    for arm in sorted(part.arms, key=lambda name: (_order(part, name), part.arms.index(name))):
        own, policy = part.trials[part.trials["arm"] == arm], _policy(part, arm)
        sizes = [_mean(own[name]) for name in norms]
        texts = found[arm].texts() if arm in found else ("reference", "", "")
        shown = ["" if size is None else f"{size:.3f}" for size in sizes]
        record: dict[str, Any] = {"architecture": architecture, "decayed_vectors": policy, "arm": arm}
        record["is_reference"] = arm not in found
        record |= found[arm].record() if arm in found else _blank()
        record |= strategies.fields_of(part, arm) if strategies.is_known(part) else {}
        lines.append(
            ((architecture, policy, arm, *texts, *shown), record | dict(zip(norms, sizes, strict=True)))
        )
    return lines


def _blank() -> dict[str, Any]:
    return {**phrases.bounds("difference", None, None), "p_holm": None, "pairs": 0}


def _policy(part: Question, arm: str) -> str:
    return phrases.decay_of(part.trials[part.trials["arm"] == arm])


def _order(part: Question, arm: str) -> int:
    policy = _policy(part, arm)
    return POLICIES.index(policy) if policy in POLICIES else len(POLICIES)


def _mean(values: Any) -> float | None:
    numbers = values.dropna().to_numpy(float)
    return float(np.mean(numbers)) if len(numbers) else None
