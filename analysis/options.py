"""What decides an analysis beside its rows: one object for the command line, the sweep file and Python.

Each field stands here with its default, its help and its allowed values; nothing heavy is imported.
"""

# ruff: noqa: RUF009 (each call makes a field)
import dataclasses
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

from scalevec.analysis.errors import DataError, require_choice
from scalevec.analysis.formula.formula import parsed
from scalevec.analysis.registry import LAWS, LawEntry

Variable = Literal["N", "D", "C"]
Loss = Literal["auto", "huber", "l2"]
Residual = Literal["log", "linear"]
Interval = Literal["auto", "seed-t", "residual-t", "cluster-t", "none"]
NConvention = Literal["auto", "matrices", "with-embedding", "total", "as-given"]
CConvention = Literal["6nd", "counted", "given"]
Unit = Literal["auto", "nats-per-token", "bits-per-token", "bits-per-byte", "loss"]
RepeatedSeeds = Literal["may-share", "independent"]

VARIABLES: dict[str, str] = {"N": "parameters", "D": "tokens", "C": "FLOPs"}
LOSSES: dict[Loss, str] = {
    "auto": "least squares where seeds repeat, Huber's loss where they do not",
    "huber": "Huber's loss",
    "l2": "least squares",
}
INTERVALS: dict[Interval, str] = {
    "auto": "the method that simulation shows to cover, by what the design can carry",
    "seed-t": "t from seed noise pooled within rungs, bootstrap around the law",
    "residual-t": "t from the residuals, bootstrap around the law",
    "cluster-t": "t from whole runs' residuals with random signs",
    "none": "no interval",
}
N_CONVENTIONS: dict[NConvention, str] = {
    "auto": "matrices where the rows are results of a sweep, else the column n_params as it is",
    "matrices": "non-embedding matrix parameters without scale vectors",
    "with-embedding": "matrix parameters and embeddings, without scale vectors",
    "total": "all parameters",
    "as-given": "the column n_params as it is",
}
UNITS: dict[Unit, str] = {
    "auto": "nats/token where the rows are results of a sweep, else not known",
    "nats-per-token": "nats/token",
    "bits-per-token": "bits/token",
    "bits-per-byte": "bits/byte",
    "loss": "",
}
"""The unit of losses as text; empty where it is not known."""
C_CONVENTIONS: dict[CConvention, str] = {
    "6nd": "6 x N x tokens",
    "counted": "FLOPs counted from the architecture, attention and head included",
    "given": "the column flops as it is",
}
REPEATED_SEEDS: dict[RepeatedSeeds, str] = {
    "may-share": "rungs of one seed may share an effect of it: a claim must hold over whole seeds too",
    "independent": "a seed's random numbers differ from rung to rung",
}
EACH_ROW = "row"
"""``--cluster row``: each row is a run of its own, where no column of this name says otherwise."""
FEWEST_REPLICATES = 20
"""The spread of fewer bootstrap replicates is known to no better than a fifth; that of one is zero."""


def _option(default: Any, text: str, choices: Iterable[str] = ()) -> Any:
    return field(default=default, metadata={"help": text, "choices": tuple(choices)})


@dataclass(frozen=True)
class AnalysisOptions:
    """Everything that decides a fit, a comparison, a table, figures or a report beside the rows.

    ``dataclasses.fields`` gives each option's default, ``metadata["help"]`` and ``metadata["choices"]``
    (empty where the set is open). Raises :class:`DataError` for a value that is not allowed.

    Examples:
        >>> AnalysisOptions(law="power-floor", bootstrap=200).level
        0.95
    """

    law: str = _option("auto", "Scaling law, or a formula over columns, as 'E + A/N^alpha'.", LAWS)
    x: Variable = _option("C", "Variable of a law in one variable.", get_args(Variable))
    y: str = _option("loss", "Column to compare or, by a law in one variable, to fit.")
    where: str | None = _option(None, "Rows to use, as 'n_params > 1e6 and loss < 4'.")
    loss: Loss = _option("auto", "Loss function of the fit.", LOSSES)
    delta: float = _option(1e-3, "Huber's delta, in units of the residual.")
    residual: Residual = _option("log", "Residuals: of log loss, or of loss.", get_args(Residual))
    hold_out: str = _option(
        "largest", "Rows to predict: largest (rung), none, a column (its last value) or an expression."
    )
    interval: Interval = _option("auto", "Method of a fit's intervals.", INTERVALS)
    level: float = _option(0.95, "Level of the intervals.")
    bootstrap: int = _option(1000, "Bootstrap replicates; 0: none.")
    seed: int = _option(0, "Seed of the bootstrap.")
    cluster: str = _option(
        "cluster", f"Cluster column: rows with the same value are dependent; {EACH_ROW}: each row is a run."
    )
    n_convention: NConvention = _option("auto", "Parameters that N counts.", N_CONVENTIONS)
    c_convention: CConvention = _option("6nd", "FLOPs that C counts.", C_CONVENTIONS)
    unit: Unit = _option("auto", "Unit of the losses.", UNITS)
    margin: float | None = _option(None, "Difference within which arms are equivalent, in nats/token.")
    looks: tuple[int, ...] | None = _option(
        None, "Numbers of seeds at which the arms are judged, declared before the first result."
    )
    repeated_seeds: RepeatedSeeds = _option(
        "may-share", "What a seed that rungs repeat means where no stream is recorded.", REPEATED_SEEDS
    )
    settings: tuple[str, ...] | None = _option(
        None, "Further columns in which a pair must agree (default: a sweep's grid)."
    )

    def __post_init__(self) -> None:
        for name in ("settings", "looks"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(given))
        require_law(self.law)
        for option in dataclasses.fields(self):
            if option.metadata["choices"] and option.name != "law":
                require_choice(option.name, getattr(self, option.name), option.metadata["choices"])
        enough = self.bootstrap == 0 or FEWEST_REPLICATES <= self.bootstrap <= 1_000_000
        margin = self.margin is None or 0 < self.margin < math.inf
        looks = self.looks is None or (
            self.looks and list(self.looks) == sorted({max(n, 1) for n in self.looks})
        )
        for name, good, allowed in (
            ("delta", 0 < self.delta < math.inf, "a number above zero"),
            ("level", 0 < self.level < 1, "a number between 0 and 1"),
            ("seed", self.seed >= 0, "a whole number from 0"),
            ("bootstrap", enough, f"0 (none) or {FEWEST_REPLICATES} to 1000000"),
            ("margin", margin, "a number of nats/token above zero, or none"),
            ("looks", looks, "increasing numbers of seeds, as [3, 5, 8]"),
            ("hold_out", isinstance(self.hold_out, str), "'largest', 'none', a column or an expression"),
        ):
            if not good:
                raise DataError(f"{name} is {getattr(self, name)!r}; allowed: {allowed}")
        entry = base_of(self.law)
        if self.y != "loss" and entry and "x" not in parsed(entry.formula).variables:
            raise DataError(f"y is {self.y!r}; law {self.law} describes the loss: allowed is 'loss'")

    def with_loss(self, *, seeds_repeat: bool = False) -> "AnalysisOptions":
        """The options with ``loss: auto`` decided.

        Where seeds repeat their noise is far above the usual delta, and Huber's loss would follow single
        points: laws by least squares vary less (``benchmarks/calibration.py``).
        """
        if self.loss != "auto":
            return self
        return dataclasses.replace(self, loss="l2" if seeds_repeat else "huber")


def with_meanings(options: AnalysisOptions, columns: Collection[str]) -> AnalysisOptions:
    """The options with what N and the loss of a table of these ``columns`` mean, where that is ``auto``.

    Of results of a sweep both are known, of another table nothing but its numbers.
    """
    is_ours = {"trial_id", "sweep"} <= set(columns)
    counted: NConvention = "matrices" if is_ours else "as-given"
    unit: Unit = "nats-per-token" if is_ours else "loss"
    return dataclasses.replace(
        options,
        n_convention=counted if options.n_convention == "auto" else options.n_convention,
        unit=unit if options.unit == "auto" else options.unit,
    )


def base_of(law: str) -> LawEntry | None:
    """Return the law whose name ``law`` is, or begins with where clauses follow; None for a formula."""
    return LAWS.get(law.split(";", 1)[0].strip())


def law_text(law: str) -> str:
    """Return ``law``, the name of one (with clauses), as a formula; raises :class:`DataError`."""
    name, sign, clauses = law.partition(";")
    entry = base_of(law)
    if entry is None:
        return law
    if clauses and (entry.per_arm or entry.method != "points"):
        raise DataError(
            f"law {name.strip()} is fitted to arms together or to optima: "
            "it takes no fixed or bounded parameters"
        )
    return entry.formula + sign + clauses


def require_law(law: str) -> None:
    """Raise :class:`DataError` unless ``law`` is the name of one or a formula."""
    if law not in LAWS and not is_formula(law):
        require_choice("law", law, LAWS)
    if law not in LAWS:
        parsed(law_text(law))


def is_formula(law: str) -> bool:
    """Whether ``law`` is meant as a formula: no name has such signs."""
    return any(sign in law for sign in "+*/^(=;") or (" - " in law)


class OptionChanges(TypedDict, total=False):
    """The fields of :class:`AnalysisOptions` as keywords, so that ``fit(rows, law="kaplan")`` is checked."""

    law: str
    x: Variable
    y: str
    where: str | None
    loss: Loss
    delta: float
    residual: Residual
    hold_out: str
    interval: Interval
    level: float
    bootstrap: int
    seed: int
    cluster: str
    n_convention: NConvention
    c_convention: CConvention
    unit: Unit
    margin: float | None
    looks: tuple[int, ...] | None
    repeated_seeds: RepeatedSeeds
    settings: tuple[str, ...] | None


def chosen_options(
    options: AnalysisOptions | None, changes: OptionChanges, unused: Collection[str] = ()
) -> AnalysisOptions:
    """Return ``options`` (by default the defaults) with ``changes``, of which none may be ``unused``.

    Raises :class:`DataError` for the name of no option, or of one that would change nothing.
    """
    used = [option.name for option in dataclasses.fields(AnalysisOptions) if option.name not in unused]
    for name in changes:
        if name in unused:
            raise DataError(f"option {name!r} changes nothing here; used are {', '.join(used)}")
        require_choice("option", name, used)
    return dataclasses.replace(options or AnalysisOptions(), **changes)
