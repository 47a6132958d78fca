"""The design choices of an arm's scale vectors, as columns of check marks."""

from collections.abc import Callable, Mapping
from typing import Any

from scalevec.analysis.comparison.trials import ComparedTrials

FIELDS = ("vector_branches", "vector_placement", "vector_reparameterization", "vector_decay")
"""The columns of the tidy table that hold an arm's scale-vector strategy."""
CHECK = "✓"

Fields = Mapping[str, str]
# What a column is called, and whether the fields of an arm have it; what they name differently says how.
CHOICES: dict[str, Callable[[Fields], bool]] = {
    "vectors": lambda f: f["vector_branches"] != "none" or f["vector_placement"] != "input",
    "HG": lambda f: f["vector_branches"] == "heterogeneous",
    "DP": lambda f: f["vector_placement"] == "dual",
    "DNP": lambda f: f["vector_placement"] == "dual-normalized",
    "OR": lambda f: f["vector_reparameterization"].startswith("or"),
    "ER": lambda f: f["vector_reparameterization"] == "er",
}
CHOICES_NOTE = (
    "vectors: has scale vectors; HG: one for each branch; DP, DNP: on both sides of a map, DNP with a "
    "normalization between; OR, ER: magnitude and direction apart, in the original and the exponential "
    "space; decay: which of the vectors decay."
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
    texts = [CHECK if has(fields) else "" for has in CHOICES.values()]
    variant = fields["vector_reparameterization"]
    if variant.startswith("or-"):
        texts[list(CHOICES).index("OR")] = variant
    has_vectors = CHOICES["vectors"](fields)
    return (*texts, fields["vector_decay"] if has_vectors else "")


def n_choices(fields: Fields) -> int:
    """How many choices beside having vectors at all; an arm without vectors comes first."""
    has_vectors = CHOICES["vectors"](fields)
    return sum(has(fields) for has in CHOICES.values()) + (fields["vector_decay"] == "input" and has_vectors)


def record(fields: Fields) -> dict[str, Any]:
    """The fields and the choices that they make, as values."""
    return {**fields, **{name: has(fields) for name, has in CHOICES.items()}}


DOTS = ("HG", "DP", "DNP", "OR", "ER", "IWD")
"""The design choices that a figure shows as dots; IWD: only input-norm vectors decay."""


def dots(fields: Fields) -> tuple[bool, ...]:
    """Which of :data:`DOTS` an arm has."""
    decays_input = fields["vector_decay"] == "input" and CHOICES["vectors"](fields)
    return (*(CHOICES[name](fields) for name in DOTS[:-1]), decays_input)
