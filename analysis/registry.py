"""The laws, tables and figures there are: one line each, which imports nothing until its code is needed.

Command-line help, completion, the sweep file's schema and the documentation read these lines. A new law is
its line alone, a table or a figure is one file and one line.
"""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Literal

Method = Literal["points", "isoflop"]


@dataclass(frozen=True)
class LawEntry:
    """A law: its right-hand side as a formula of :mod:`formula`, and where it was published.

    ``per_arm`` names the coefficients that each arm keeps where arms are fitted together, ``alone`` the law
    of one arm then; ``method`` says what is fitted, the trials themselves or the best sizes found from them.
    """

    formula: str
    source: str
    per_arm: tuple[str, ...] = ()
    method: Method = "points"
    alone: str = ""

    @property
    def description(self) -> str:
        """The law and where it was published, in one line."""
        formula = self.formula.split(";", 1)[0]
        return f"{'L' if self.method == 'points' else 'N*'} = {formula} ({self.source})"


@dataclass(frozen=True)
class RegistryEntry:
    """A table or a figure: its function, as ``module:name`` below ``analysis``, and what it shows."""

    code: str
    shows: str

    def load(self) -> Any:
        """Import the function that builds it."""
        return resolve_name(f"{__name__.rpartition('.')[0]}.{self.code}")


_KAPLAN = "Kaplan et al. 2020, arXiv 2001.08361"
_HOFFMANN = "Hoffmann et al. 2022, arXiv 2203.15556"
_HENIGHAN = "Henighan et al. 2020, arXiv 2010.14701"
_CHINCHILLA = "E + A/N^alpha + B/D^beta"
LAWS: dict[str, LawEntry] = {
    "auto": LawEntry("A/x^alpha", "with a floor E + where the data identify one, arXiv 2010.14701"),
    "power": LawEntry("A/x^alpha", f"{_KAPLAN}, eq. 1.1"),
    "power-floor": LawEntry("E + A/x^alpha", f"{_HENIGHAN}, eq. 1.1"),
    "power-floor-shared": LawEntry(
        "E + A/x^alpha", f"{_HENIGHAN}, eq. 1.1, the arms' floor shared", ("A", "alpha"), alone="power-floor"
    ),
    "chinchilla": LawEntry(_CHINCHILLA, f"{_HOFFMANN}, eq. 2"),
    "chinchilla-shared": LawEntry(
        _CHINCHILLA, f"{_HOFFMANN}, eq. 2, arms together", ("A", "B"), alone="chinchilla"
    ),
    "gadre": LawEntry("E + A/N^alpha + B/D^alpha", "Gadre et al. 2024, arXiv 2403.08540, eq. 4, in N and D"),
    "kaplan": LawEntry(
        "[(Nc/N)^(aN/aD) + Dc/D]^aD; positive Nc, Dc; bounds aN = 0:, aD = 0:"
        "; start Nc = 1e3:1e20, Dc = 1e3:1e20, aN = 0.01:1, aD = 0.01:1",
        f"{_KAPLAN}, eq. 1.5",
    ),
    "data-constrained": LawEntry(
        "E + A/N^alpha + B/(min(unique_tokens, D)*(1 + R*(1 - exp((1 - max(D/unique_tokens, 1))/R))))^beta"
        "; columns unique_tokens; positive E, A, alpha, B, beta, R",
        "Muennighoff et al. 2023, arXiv 2305.16264: its data part, D tokens from unique_tokens",
    ),
    "isoflop": LawEntry("G C^a", f"{_HOFFMANN}, section 3.2", method="isoflop"),
}
TABLES: dict[str, RegistryEntry] = {
    "comparison": RegistryEntry(
        "tables.comparison:build",
        "loss, difference and compute multiplier per rung and setting, with the verdicts",
    ),
    "ablation": RegistryEntry(
        "tables.strategies:ablation", "design choices of each arm and its differences to the reference"
    ),
    "factorial": RegistryEntry(
        "tables.strategies:factorial", "what each part changes over every combination of the others"
    ),
    "scaling": RegistryEntry(
        "tables.scaling:build", "fitted laws with intervals, errors on held-out rungs, multipliers"
    ),
    "overhead": RegistryEntry("tables.overhead:build", "what each arm costs in time, memory and parameters"),
}
FIGURES: dict[str, RegistryEntry] = {
    name: RegistryEntry(f"figures.{module}:draw_{name}", shows)
    for name, module, shows in (
        ("loss", "law_curves", "test loss against compute (or N, or D) with the fitted laws"),
        ("differences", "forest", "difference to the reference per rung, with intervals"),
        ("multipliers", "law_curves", "compute multiplier against compute"),
        ("predictions", "law_curves", "the laws to ten times the largest compute"),
        ("isoflop", "best_sizes", "loss of each compute budget against N, with parabolas"),
        ("optimal", "best_sizes", "best N and D against the compute budget"),
        ("surface", "best_sizes", "lines of equal loss over N and D"),
        ("tuning", "tuning_bowls", "validation loss against the tuned field per rung"),
        ("curves", "curves", "training loss against tokens per rung"),
        ("envelope", "best_sizes", "training loss against compute with its envelope"),
        ("statistics", "curves", "scale vectors and theory along the run"),
    )
}
"""The figure ``NAME`` is drawn by ``draw_NAME`` of its module in ``figures``."""
