"""The ablation table: one row per arm with its design choices and its differences to the reference."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from scalevec.analysis.comparison.differences import (
    CellMean,
    LossDifference,
    corrected_differences,
    excludes_zero,
)
from scalevec.analysis.comparison.trials import Cell, ComparedTrials, Key
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import p_value
from scalevec.analysis.tables import notes
from scalevec.analysis.tables.content import Table

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
DOTS = ("HG", "AP", "DP", "DNP", "OR", "ER", "IWD")
"""The design choices that a figure shows as dots; IWD: only input-norm vectors decay."""


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


def dots(fields: Fields) -> tuple[bool, ...]:
    """Which of :data:`DOTS` an arm has."""
    decays_input = fields["vector_decay"] == "input" and CHOICES["vectors"](fields)
    return (*(CHOICES[name](fields) for name in DOTS[:-1]), decays_input)


def by_choices(fields: Mapping[str, Fields], arms: Sequence[str]) -> list[str]:
    """The ``arms`` by the number of their design choices and by name; one without vectors comes first."""
    numbers = {arm: sum(map(bool, marks(of)[:-1])) + dots(of)[-1] for arm, of in fields.items()}
    return sorted(arms, key=lambda arm: (numbers.get(arm, 0), arm))


@dataclass(frozen=True)
class _ArmMean:
    """One arm's mean difference, and that of each cell."""

    trials: ComparedTrials
    arm: str
    difference: LossDifference
    cells: Mapping[Key, CellMean]

    @property
    def mean(self) -> float:
        """The mean difference; infinite without a complete pair."""
        return float("inf") if self.difference.mean is None else self.difference.mean

    @property
    def is_whole(self) -> bool:
        """Whether the mean is over all cells of the reference, so that it may be ranked beside others."""
        trials, pairs = self.trials, self.trials.pairs(self.arm)
        # By the columns of the pairs: an arm and the reference may each have run one rate, and not the same.
        cells_of_reference, cells = (
            set(trials.keys(rows, pairs.cell_columns))
            for rows in (trials.of_arm(trials.reference, "completed"), pairs.complete)
        )
        return bool(cells) and cells == cells_of_reference

    def texts(self) -> tuple[str, str, str]:
        """Difference, Holm's p (a word for trials that are the same; empty without one) and pairs."""
        pairs = self.trials.pairs(self.arm)
        p = "" if self.difference.p_holm is None else p_value(self.difference.p_holm)
        p = "same trials" if pairs.same_trials else p
        return notes.difference(self.difference), p, str(len(pairs.complete))


def build(trials: ComparedTrials) -> Table:
    """The reference first, then the arms by the number of their design choices and by name."""
    fields = strategies(trials)
    rows = _rows(trials, by_choices(fields, trials.others))
    cells = [cell for cell in trials.cells if any(cell.key in row.cells for row in rows)]
    best = _lowest(rows)
    before = ("arm", *((*CHOICES, "decay") if fields else ()))
    after = (*(cell.name for cell in cells), "all", "Holm p", "pairs")
    texts = {trials.reference: ("reference", *[""] * (len(after) - 1))}
    texts |= {
        row.arm: (*(notes.difference(row.cells.get(c.key)) for c in cells), *row.texts()) for row in rows
    }
    partial = [row.arm for row in rows if row.cells and not row.is_whole]
    return Table(
        title="Ablation",
        columns=(*before, *after),
        rows=tuple((arm, *(marks(fields[arm]) if fields else ()), *texts[arm]) for arm in texts),
        numeric=(False,) * len(before) + (True,) * len(after),
        notes=(
            *notes.loss_notes(trials),
            notes.mean_note(len(rows) + trials.n_arms_left_out, trials.options.level),
            _lowest_note(best, rows),
            CHOICES_NOTE if fields else "The source does not hold the strategies of its arms.",
            *(
                [f"Not over all cells, so not to be ranked beside the others: {', '.join(partial)}."]
                * bool(partial)
            ),
            *notes.convention_notes(trials),
        ),
        groups=("",) * len(before) + ("difference",) * (len(cells) + 1) + ("", ""),
        best=frozenset({(1 + rows.index(best), len(before) + len(cells))} if best else ()),
        breaks=frozenset({1}),
        records=tuple(
            {"arm": row.arm, **_choices_record(fields.get(row.arm)), **record}
            for row in rows
            for record in _records(row, cells, is_best=best is row)
        ),
    )


def _rows(trials: ComparedTrials, arms: Sequence[str]) -> list[_ArmMean]:
    """A row for each of ``arms``. Raises :class:`DataError` where there is no pair at all."""
    family = [trials.paired(arm) for arm in arms]
    if not any(paired.estimate for paired in family):
        raise DataError("no arm has a completed pair with the reference, so there is no difference to show")
    differences = corrected_differences(family, trials.options.level, trials.n_arms_left_out)
    return [
        _ArmMean(trials, arm, difference, trials.differences(arm))
        for arm, difference in zip(arms, differences, strict=True)
    ]


def _lowest(rows: Sequence[_ArmMean]) -> _ArmMean | None:
    """The row with the lowest mean below zero, of those over all cells whose arm never diverged."""
    kept = [row for row in rows if row.mean < 0 and row.is_whole and not row.trials.diverged(row.arm)]
    return min(kept, key=lambda row: row.mean, default=None)


def _lowest_note(best: _ArmMean | None, rows: Sequence[_ArmMean]) -> str:
    """What bold means here, and whether the interval separates the best arm from the next."""
    rule = "Bold: the lowest overall difference below zero, among arms without a diverged trial."
    if best is None:
        return f"{rule} No arm lies below the reference."
    rivals = [row for row in rows if row is not best and row.is_whole]
    if not rivals:
        return rule
    following = min(rivals, key=lambda row: row.mean)
    between = best.trials.paired(best.arm, following.arm)
    if between.estimate is None or not _in_shown_cells(best, following):
        return rule
    (difference,) = corrected_differences([between], best.trials.options.level)
    words = "separated from" if excludes_zero(difference.interval) else "not separated from"
    shown = notes.difference(difference)
    return f"{rule} {best.arm} is {words} the next, {following.arm}: {shown} between them."


def _in_shown_cells(*rows: _ArmMean) -> bool:
    """Whether two rows are paired in cells that both show, not at a rate that one of them does not."""
    return all(
        row.trials.differences(row.arm, other.arm).keys() <= row.cells.keys()
        for row, other in permutations(rows)
    )


def _choices_record(fields: Fields | None) -> dict[str, Any]:
    """The fields and the choices that they make, as values."""
    return {**fields, **{name: has(fields) for name, has in CHOICES.items()}} if fields else {}


def _records(row: _ArmMean, cells: Sequence[Cell], *, is_best: bool) -> list[dict[str, Any]]:
    """A record for each cell and one over all (cell ``all``)."""
    records: list[dict[str, Any]] = []
    for cell in cells:
        mean = row.cells.get(cell.key)
        size = {"cell": cell.name, "n_params": cell.n_params, "n_tokens": cell.n_tokens}
        shown = {**size, **notes.of_mean("difference", mean), "p_holm": None, "pairs": mean.n if mean else 0}
        records.append({**shown, "best": False})
    whole = {"cell": "all", "n_params": None, "n_tokens": None, **notes.of_mean("difference", row.difference)}
    pairs = len(row.trials.pairs(row.arm).complete)
    return [*records, {**whole, "p_holm": row.difference.p_holm, "pairs": pairs, "best": is_best}]
