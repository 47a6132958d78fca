"""What decides a fit beside the points: law, conventions, loss, intervals; each output states it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.data import (
    C_CONVENTIONS,
    N_CONVENTIONS,
    DataError,
    FloatArray,
    compute_of,
    parameters_of,
    require_choice,
)
from analysis.laws import VARIABLES, Law, law_named
from analysis.parametrisation import Options

LOSSES = ("huber", "l1", "l2")
RESIDUALS = ("log", "linear")
INTERVALS = {
    "auto": "the method that simulation shows to cover, by what the design can carry",
    "seed-t": "t from seed noise pooled within rungs, redrawn around the law",
    "residual-t": "t from the residuals, redrawn around the law",
    "cluster-t": "t from whole runs' residuals with random signs",
    "percentile": "percentile bootstrap over independent runs",
    "profile": "profile of the objective",
    "none": "no interval",
}
FEWEST_REDRAWS = 20
"""The spread of fewer redraws is known to no better than a fifth; that of one is zero."""


@dataclass(frozen=True)
class FitSettings:
    """Everything that decides a fit beside the points; each output states it.

    ``x`` (N, D or C) is the variable of a law in one variable and ``y`` the column that it describes;
    ``delta`` is Huber's, in log loss or nats; ``bootstrap`` is the number of redraws or resamples of an
    interval; ``cluster`` is the column that says which rows are not independent.
    """

    law: str = "power"
    x: str = "C"
    y: str = "loss"
    n_convention: str = "matrices"
    c_convention: str = "6nd"
    loss: str = "huber"
    delta: float = 1e-3
    residual: str = "log"
    interval: str = "auto"
    level: float = 0.95
    bootstrap: int = 1000
    seed: int = 0
    cluster: str = "cluster"

    def __post_init__(self) -> None:
        law = law_named(self.law)
        require_choice("x", self.x, VARIABLES)
        require_choice("n_convention", self.n_convention, N_CONVENTIONS)
        require_choice("c_convention", self.c_convention, C_CONVENTIONS)
        require_choice("loss", self.loss, LOSSES)
        require_choice("residual", self.residual, RESIDUALS)
        require_choice("interval", self.interval, INTERVALS)
        for name, value, good, allowed in (
            ("delta", self.delta, 0 < self.delta < np.inf, "a number above zero"),
            ("level", self.level, 0 < self.level < 1, "a number between 0 and 1"),
            (
                "bootstrap",
                self.bootstrap,
                _enough(self.bootstrap),
                f"0 (none) or {FEWEST_REDRAWS} to 1000000",
            ),
        ):
            if not good:
                raise DataError(f"{name} is {value!r}; allowed: {allowed}")
        if self.y != "loss" and law.variables != ("x",):
            raise DataError(f"y is {self.y!r}; law {law.name} describes the loss: allowed is 'loss'")

    @property
    def functional_form(self) -> Law:
        """The law."""
        return law_named(self.law)

    @property
    def formula(self) -> str:
        """The law as text with the chosen x and y."""
        law = self.functional_form
        if law.variables != ("x",):
            return law.formula
        text = law.formula.replace("x", self.x)
        return text if self.y == "loss" else text.replace("L = ", f"{self.y} = ", 1)

    @property
    def options(self) -> Options:
        """What the solver needs to know."""
        return Options(self.loss, self.delta, self.residual)

    @property
    def size(self) -> str:
        """The variable by which rungs are ordered: N, or that of a law in one variable."""
        variables = self.functional_form.variables
        return "x" if "x" in variables else "N" if "N" in variables else "C"

    def needed_columns(self) -> list[str]:
        """The columns that these settings read."""
        names = {self.x if name == "x" else name for name in self.functional_form.variables}
        if self.functional_form.method != "points":
            names |= {"N"}
        given = self.c_convention == "given"
        columns = [self.y]
        if "N" in names or ("C" in names and not given):
            columns.append("n_params")
        if "D" in names or ("C" in names and not given):
            columns.append("n_tokens")
        return [*columns, *(["flops"] if "C" in names and given else [])]

    def resolved(self, table: pd.DataFrame) -> "FitSettings":
        """These settings, with C taken from the column flops where N or tokens are not in the table."""
        lacks = not {"n_params", "n_tokens"} <= set(table.columns)
        if self.c_convention == "6nd" and lacks and "flops" in table.columns:
            return dataclasses.replace(self, c_convention="given")
        return self

    def variables(self, rows: pd.DataFrame) -> dict[str, FloatArray]:
        """The law's variables, name -> [rows]; units: counts and FLOPs."""
        return {
            name: self.variable(self.x if name == "x" else name, rows)
            for name in self.functional_form.variables
        }

    def variable(self, name: str, rows: pd.DataFrame) -> FloatArray:
        """N, D or C of each row."""
        if name == "C":
            return compute_of(rows, self.n_convention, self.c_convention)
        return parameters_of(rows, self.n_convention) if name == "N" else rows["n_tokens"].to_numpy(float)

    def values(self, rows: pd.DataFrame) -> FloatArray:
        """y of each row."""
        return rows[self.y].to_numpy(float)


def _enough(redraws: int) -> bool:
    return redraws == 0 or FEWEST_REDRAWS <= redraws <= 1_000_000


def settings_from(settings: Mapping[str, Any]) -> FitSettings:
    """The settings by name; raises :class:`DataError` for a name that is none, or a bad value."""
    for name in settings:
        require_choice("option", name, [f.name for f in dataclasses.fields(FitSettings)])
    return FitSettings(**settings)
