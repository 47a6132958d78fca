"""The laws, tables and figures there are: each one line here, which imports nothing until its code is needed.

Command-line help, completion, the sweep file's schema and the documentation read these lines. A new law that
is a sum of power terms is its line alone; any other law, a table or a figure is one file and one line.
"""

import importlib
import re
from dataclasses import dataclass
from typing import Any, Literal

Method = Literal["points", "isoflop", "envelope"]


@dataclass(frozen=True)
class LawEntry:
    """A law: its right-hand side in E, A/x^alpha, A/N^alpha, B/D^beta (falling) or G C^a (rising).

    ``per_arm`` names the coefficients that each arm keeps where arms are fitted together; ``method`` says
    what is fitted, the trials themselves or the best sizes found from them; ``factory``
    ("module:name") is the law object of a form that is no sum of power terms.
    """

    formula: str
    source: str
    per_arm: tuple[str, ...] = ()
    method: Method = "points"
    factory: str = ""

    @property
    def in_one_variable(self) -> bool:
        """Whether the user chooses the variable x of the law."""
        return "x" in self.formula.replace("/", " ").replace("^", " ").split()

    @property
    def description(self) -> str:
        """The law and where it was published, in one line."""
        return f"{'L' if self.method == 'points' else 'N*'} = {self.formula} ({self.source})"


_TERM = re.compile(r"(?P<coefficient>\w+)(?:(?P<sign>[ /])(?P<variable>[NDCx])(?:\^(?P<exponent>\w+))?)?")


def law_terms(formula: str) -> list[dict[str, str | None]]:
    """Return coefficient, sign, variable and exponent of each term of ``formula``; a space is a rising term.

    Raises ``ValueError`` for what is no sum of a constant and power terms.
    """
    terms = []
    for text in formula.split(" + "):
        match = _TERM.fullmatch(text)
        if match is None:
            raise ValueError(f"law {formula!r}: {text!r} is no term like E, A/x^alpha or G C^a")
        terms.append(match.groupdict())
    return terms


@dataclass(frozen=True)
class RegistryEntry:
    """What a name stands for: one line of description and the object that does it, as "module:name"."""

    description: str
    factory: str


def load(factory: str) -> Any:
    """Import and return the object that ``factory`` ("module:name") names."""
    module, _, name = factory.partition(":")
    return getattr(importlib.import_module(module), name)


_KAPLAN = "Kaplan et al. 2020, arXiv 2001.08361"
_HOFFMANN = "Hoffmann et al. 2022, arXiv 2203.15556"
_GADRE = "Gadre et al. 2024, arXiv 2403.08540, eq. 4, written in N and D"
_CHINCHILLA = "E + A/N^alpha + B/D^beta"
_KAPLAN_FORM = "[(Nc/N)^(aN/aD) + Dc/D]^aD"
LAWS: dict[str, LawEntry] = {
    "power": LawEntry("A/x^alpha", f"{_KAPLAN}, eq. 1.1"),
    "power-floor": LawEntry("E + A/x^alpha", "Henighan et al. 2020, arXiv 2010.14701, eq. 1.1"),
    "chinchilla": LawEntry(_CHINCHILLA, f"{_HOFFMANN}, eq. 2"),
    "chinchilla-shared": LawEntry(_CHINCHILLA, f"{_HOFFMANN}, eq. 2, arms together", per_arm=("A", "B")),
    "gadre": LawEntry("E + A/N^alpha + B/D^alpha", _GADRE),
    "kaplan": LawEntry(_KAPLAN_FORM, f"{_KAPLAN}, eq. 1.5", factory="scalevec.analysis.laws:KAPLAN"),
    "isoflop": LawEntry("G C^a", f"{_HOFFMANN}, section 3.2", method="isoflop"),
    "envelope": LawEntry("G C^a", f"{_HOFFMANN}, section 3.1", method="envelope"),
}
TABLES: dict[str, RegistryEntry] = {
    name: RegistryEntry(description, f"scalevec.analysis.tables.{module}:build")
    for name, module, description in (
        ("main", "main", "loss, difference and compute multiplier per rung and setting"),
        ("ablation", "ablation", "design choices of each arm and its differences to the reference"),
        ("decay", "decay", "which scale vectors decay, per architecture"),
        ("overhead", "overhead", "what each arm costs in time, memory and parameters"),
        ("optimizers", "optimizers", "loss, difference and learning rate per optimizer and schedule"),
        ("scaling", "scaling", "fitted laws with their intervals, hold-out errors and multipliers"),
        ("comparison", "comparison", "each arm against the reference per rung, with its verdict"),
    )
}
FIGURES: dict[str, RegistryEntry] = {
    name: RegistryEntry(description, f"scalevec.analysis.figures.{code}")
    for name, code, description in (
        ("loss", "law_curves:draw_loss", "test loss against compute (or N, or D) with the fitted laws"),
        (
            "differences",
            "forest:draw_differences",
            "loss difference to the reference per rung, with intervals",
        ),
        ("ablation", "forest:draw_ablation", "loss difference of each arm beside its design choices"),
        ("multipliers", "law_curves:draw_multipliers", "compute multiplier against compute"),
        ("tuning", "tuning_bowls:draw_tuning", "validation loss against the tuned field per rung"),
        ("curves", "training_curves:draw_curves", "training loss against tokens per rung"),
        ("vectors-mean", "run_statistics:draw_vector_mean", "mean of the scale vectors along the run"),
        (
            "vectors-deviation",
            "run_statistics:draw_vector_deviation",
            "their standard deviation along the run",
        ),
        ("vectors-near-zero", "run_statistics:draw_vector_near_zero", "their share of entries near zero"),
        ("theory", "run_statistics:draw_theory", "what was measured of the theory along the run"),
    )
}
