"""The ablation table: one row per arm with its design choices and its differences to the reference."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scalevec.analysis.comparison.differences import corrected_differences
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import p_value
from scalevec.analysis.tables import notes
from scalevec.analysis.tables.render import Table

FIELDS = ("vector_branches", "vector_placement", "vector_reparameterization", "vector_decay")
"""The columns of the tidy table that hold an arm's scale-vector strategy."""
Fields = Mapping[str, str]
CHOICES: dict[str, Callable[[Fields], bool]] = {
    "vectors": lambda f: f["vector_branches"] != "none" or f["vector_placement"].startswith("dual"),
    "HG": lambda f: f["vector_branches"] == "heterogeneous",
    "AP": lambda f: f["vector_placement"] == "dual" and f["vector_branches"] == "none",
    "DP": lambda f: f["vector_placement"] == "dual" and f["vector_branches"] != "none",
    "DNP": lambda f: f["vector_placement"] == "dual-normalized",
    "OR": lambda f: f["vector_reparameterization"] == "or",
    "ER": lambda f: f["vector_reparameterization"] == "er",
}
"""What a column is called, and whether the fields of an arm have it."""
VARIANTS = {"normalized": "DNP", "product": "OR", "exponential-sum": "ER"}
"""What is not the paper's, and the column that it comes nearest to, in which it stands by its name."""
CHOICES_NOTE = (
    "vectors: has scale vectors; HG: one for each branch; AP: behind a map only; DP, DNP: on both sides of "
    "it, DNP with a normalization between; OR, ER: magnitude and direction apart, in the original and the "
    "exponential space; decay: which of the vectors decay."
)


def strategies(trials: ComparedTrials) -> dict[str, Fields]:
    """Each arm's strategy by column of :data:`FIELDS`; empty where the source does not say.

    Several values of a column are joined, so that none is hidden.
    """
    if not all(trials.has(name) for name in FIELDS):
        return {}
    return {
        arm: {n: ", ".join(sorted({str(v) for v in trials.of_arm(arm)[n].dropna()} - {""})) for n in FIELDS}
        for arm in trials.arms
    }


def marks(fields: Fields) -> tuple[str, ...]:
    """A check mark (or the variant's name) for each of :data:`CHOICES`, then the decay policy."""
    variants = {VARIANTS[value]: value for value in fields.values() if value in VARIANTS}
    texts = {name: "✓" if has(fields) else "" for name, has in CHOICES.items()} | variants
    return (*texts.values(), fields["vector_decay"] if CHOICES["vectors"](fields) else "")


def by_choices(fields: Mapping[str, Fields], arms: Sequence[str]) -> list[str]:
    """The ``arms`` by the number of their design choices and by name; one without vectors comes first."""
    texts = {arm: marks(of) for arm, of in fields.items()}
    numbers = {arm: sum(map(bool, of[:-1])) + (of[-1] == "input") for arm, of in texts.items()}
    return sorted(arms, key=lambda arm: (numbers.get(arm, 0), arm))


def build(trials: ComparedTrials) -> Table:
    """The reference first, then the arms by the number of their design choices and by name.

    Raises :class:`DataError` where there is no pair at all.
    """
    fields = strategies(trials)
    arms = by_choices(fields, trials.others)
    family = [trials.paired(arm) for arm in arms]
    if not any(paired.estimate for paired in family):
        raise DataError("no arm has a completed pair with the reference, so there is no difference to show")
    means = corrected_differences(family, trials.n_arms_left_out)
    of_cells = {arm: trials.differences(arm) for arm in arms}
    cells = [cell for cell in trials.cells if any(cell.key in of_arm for of_arm in of_cells.values())]
    before = ("arm", *((*CHOICES, "decay") if fields else ()))
    after = (*(cell.name for cell in cells), "all", "Holm p", "pairs")
    choices = {arm: marks(of) for arm, of in fields.items()}
    rows = [(trials.reference, *choices.get(trials.reference, ()), "reference", *[""] * (len(after) - 1))]
    records: list[dict[str, Any]] = []
    for arm, mean in zip(arms, means, strict=True):
        pairs = trials.pairs(arm)
        p = "same trials" if pairs.same_trials else "" if mean.p_holm is None else p_value(mean.p_holm)
        shown = [notes.difference(of_cells[arm].get(cell.key)) for cell in cells]
        total = (notes.difference(mean), p, str(len(pairs.complete)))
        rows.append((arm, *choices.get(arm, ()), *shown, *total))
        has = {name: has(fields[arm]) for name, has in CHOICES.items()} if fields else {}
        of_arm = {"arm": arm, **fields.get(arm, {}), **has}
        for cell in cells:
            of_cell = of_cells[arm].get(cell.key)
            size = {"cell": cell.name, "n_params": cell.n_params, "n_tokens": cell.n_tokens}
            figures = {**notes.of_mean("difference", of_cell), "pairs": of_cell.n if of_cell else 0}
            records.append({**of_arm, **size, **figures})
        whole = {**notes.of_mean("difference", mean), "p_holm": mean.p_holm}
        records.append({**of_arm, "cell": "all", **whole, "pairs": len(pairs.complete)})
    return Table(
        title=f"Ablation: differences to {trials.reference}",
        columns=(*before, *after),
        rows=tuple(rows),
        numeric=(False,) * len(before) + (True,) * len(after),
        notes=(
            *notes.loss_notes(trials, len(arms) + trials.n_arms_left_out),
            CHOICES_NOTE if fields else "The source does not hold the strategies of its arms.",
            *notes.convention_notes(trials),
        ),
        breaks=frozenset({1}),
        records=tuple(records),
    )
