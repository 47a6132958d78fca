"""The design choices of an arm's scale vectors, as columns of check marks."""

from collections.abc import Callable, Mapping
from typing import Any

from scalevec.analysis.comparison.trials import ComparedTrials

FIELDS = ("vector_branches", "vector_placement", "vector_reparameterization", "vector_decay")
"""The columns of the tidy table that hold an arm's scale-vector strategy."""
CHECK = "✓"

Fields = Mapping[str, str]
# What a column is called, and whether the fields of an arm have it.
CHOICES: dict[str, Callable[[Fields], bool]] = {
    "vectors": lambda f: f["vector_branches"] != "none" or f["vector_placement"].startswith("dual"),
    "HG": lambda f: f["vector_branches"] == "heterogeneous",
    "AP": lambda f: f["vector_placement"] == "dual" and f["vector_branches"] == "none",
    "DP": lambda f: f["vector_placement"] == "dual" and f["vector_branches"] != "none",
    "DNP": lambda f: f["vector_placement"] == "dual-normalized",
    "OR": lambda f: f["vector_reparameterization"] == "or",
    "ER": lambda f: f["vector_reparameterization"] == "er",
}
VARIANTS = {"normalized": "DNP", "product": "OR", "exponential-sum": "ER"}
"""What is not the paper's, and the column that it comes nearest to, in which it stands by its name."""
CHOICES_NOTE = (
    "vectors: has scale vectors; HG: one for each branch; AP: behind a map only; DP, DNP: on both sides of "
    "it, DNP with a normalization between; OR, ER: magnitude and direction apart, in the original and the "
    "exponential space; decay: which of the vectors decay."
)


def fields_of(trials: ComparedTrials, arm: str) -> dict[str, str]:
    """The arm's strategy by column of :data:`FIELDS`; several values are joined, so that none is hidden."""
    rows = trials.of_arm(arm)
    return {name: ", ".join(sorted({str(v) for v in rows[name].dropna()} - {""})) for name in FIELDS}


def is_known(trials: ComparedTrials) -> bool:
    """Whether the source says what the strategies of its arms are."""
    return all(trials.has(name) for name in FIELDS)


def marks(fields: Fields) -> tuple[str, ...]:
    """A check mark (or the variant's name) for each of :data:`CHOICES`, then the decay policy."""
    texts = {name: CHECK if has(fields) else "" for name, has in CHOICES.items()} | _variants(fields)
    has_vectors = CHOICES["vectors"](fields)
    return (*texts.values(), fields["vector_decay"] if has_vectors else "")


def _variants(fields: Fields) -> dict[str, str]:
    """The names of the arm's variants, by column."""
    return {VARIANTS[value]: value for value in fields.values() if value in VARIANTS}


def n_choices(fields: Fields) -> int:
    """How many choices beside having vectors at all; an arm without vectors comes first."""
    has_vectors = CHOICES["vectors"](fields)
    chosen = sum(has(fields) for has in CHOICES.values()) + len(_variants(fields))
    return chosen + (fields["vector_decay"] == "input" and has_vectors)


def record(fields: Fields) -> dict[str, Any]:
    """The fields and the choices that they make, as values."""
    return {**fields, **{name: has(fields) for name, has in CHOICES.items()}}


DOTS = ("HG", "AP", "DP", "DNP", "OR", "ER", "IWD")
"""The design choices that a figure shows as dots; IWD: only input-norm vectors decay."""


def dots(fields: Fields) -> tuple[bool, ...]:
    """Which of :data:`DOTS` an arm has."""
    decays_input = fields["vector_decay"] == "input" and CHOICES["vectors"](fields)
    return (*(CHOICES[name](fields) for name in DOTS[:-1]), decays_input)
