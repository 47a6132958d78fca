"""The laws, tables and figures there are: each one line here, which imports nothing until its code is needed.

Command-line help, completion, the sweep file's schema and the documentation read these lines. A new law that
is a sum of power terms is its line alone; any other law, a table or a figure is one file and one line.
"""

import importlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

Method = Literal["points", "isoflop", "envelope"]


@dataclass(frozen=True)
class LawEntry:
    """A law: its right-hand side in E, A/x^alpha, A/N^alpha, B/D^beta (falling) or G C^a (rising).

    ``per_arm`` names the coefficients that each arm keeps where arms are fitted together; ``method`` says
    what is fitted, the trials themselves or the best sizes found from them; ``factory``
    ("module:name") is the law object of a form that is neither a sum of power terms nor a formula;
    ``any_y`` says that it may describe another column than the loss.
    """

    formula: str
    source: str
    per_arm: tuple[str, ...] = ()
    method: Method = "points"
    factory: str = ""
    any_y: bool = False

    @property
    def in_one_variable(self) -> bool:
        """Whether the user chooses the variable x of the law."""
        return "x" in self.formula.replace("/", " ").replace("^", " ").split()

    @property
    def description(self) -> str:
        """The law and where it was published, in one line."""
        formula = self.formula.split(";", 1)[0]
        return f"{'L' if self.method == 'points' else 'N*'} = {formula} ({self.source})"


_TERM = re.compile(
    r"(?P<coefficient>[^\W\d]\w*)(?:(?P<sign>[ /*])(?P<variable>[^\W\d]\w*)(?:\^(?P<exponent>[^\W\d]\w*))?)?"
)


def law_terms(formula: str, columns: Collection[str] = ()) -> list[dict[str, str | None]]:
    """Return coefficient, sign, variable and exponent of each term of ``formula``.

    Variables are N, D, C, x and ``columns``; a space or * is a rising term. Raises ``ValueError`` for what is
    no sum of a constant and power terms.
    """
    variables, terms = {"N", "D", "C", "x", *columns}, []
    for text in formula.strip().split("+"):
        match = _TERM.fullmatch(re.sub(r"\s*([*/^])\s*", r"\1", text.strip()))
        part = match.groupdict() if match else {}
        named = {part.get("coefficient"), part.get("exponent")}
        if not match or named & variables or not {part["variable"]} <= {None, *variables}:
            raise ValueError(f"law {formula!r}: {text.strip()!r} is no term like E, A/x^alpha or G C^a")
        terms.append(part)
    coefficients = [part["coefficient"] for part in terms]
    if len(set(coefficients)) < len(coefficients):
        raise ValueError(f"law {formula!r}: a coefficient stands in two terms")
    return terms


def base_of(law: str) -> "LawEntry | None":
    """Return the law whose name ``law`` is, or begins with where clauses follow; None for a formula."""
    return LAWS.get(law.split(";", 1)[0].strip())


def law_text(law: str) -> str:
    """Return ``law``, the name of one with clauses, as a formula. Raises ``ValueError``: it takes none."""
    name, _, clauses = law.partition(";")
    entry = LAWS[name.strip()]
    if entry.per_arm or entry.method != "points":
        raise ValueError(
            f"law {name.strip()} is fitted to arms together or to optima: "
            "it takes no fixed or bounded parameters"
        )
    text = entry.formula.translate(str.maketrans("[]", "()"))
    names = re.findall(r"[^\W\d]\w*", text)
    if ";" not in text and not entry.factory:
        names = [str(term["coefficient"]) for term in law_terms(text)]
    positive = (
        "" if ";" in text else f"; positive {', '.join(n for n in dict.fromkeys(names) if n not in 'NDCx')}"
    )
    return f"{text}{positive};{clauses}"


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
    "overtraining": LawEntry(
        "E + (a*(D/N)^eta + b*(N/D)^eta)/C^eta; positive E, a, b",
        "Gadre et al. 2024, arXiv 2403.08540, eq. 4, with tokens per parameter D/N",
    ),
    "data-constrained": LawEntry(
        "E + A/N^alpha + B/(min(unique_tokens, D)*(1 + R*(1 - exp((1 - max(D/unique_tokens, 1))/R))))^beta"
        "; columns unique_tokens; positive E, A, alpha, B, beta, R",
        "Muennighoff et al. 2023, arXiv 2305.16264: its data part, D tokens from unique_tokens",
    ),
    "mixture-of-experts": LawEntry(
        "E + a/n_total^alpha + b/D^beta + c*(n_total/n_active)^lambda"
        " + d*(n_total/n_active)^delta/n_total^gamma"
        "; columns n_total, n_active; positive E, a, alpha, b, beta, c, d",
        "Abnar et al. 2025, arXiv 2501.12370, with active over total parameters for one minus the sparsity",
    ),
    "loss-to-accuracy": LawEntry(
        "floor + rise*sigmoid(slope*(middle - loss)); columns loss; positive floor, rise, slope, middle",
        "Bhagia et al. 2024, arXiv 2412.04403: accuracy from the loss of the task",
        any_y=True,
    ),
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
        ("scaling", "scaling", "fitted laws with intervals, errors on held-out and next rungs, multipliers"),
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
        ("multipliers", "multiplier_curves:draw_multipliers", "compute multiplier against compute"),
        ("hold-outs", "next_rungs:draw_hold_outs", "how the law of the smaller rungs predicts each next one"),
        ("predictions", "predicted_curves:draw_predictions", "the laws to ten times the largest compute"),
        ("tuning", "tuning_bowls:draw_tuning", "validation loss against the tuned field per rung"),
        ("curves", "training_curves:draw_curves", "training loss against tokens per rung"),
        ("statistics", "run_statistics:draw_statistics", "scale vectors and theory along the run"),
    )
}
