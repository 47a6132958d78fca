"""The columns of a table that a law reads, as arrays, under the chosen conventions."""

import dataclasses

import pandas as pd

from scalevec.analysis.data.runs import budgets_of
from scalevec.analysis.data.tidy import FloatArray, compute_of, parameters_of
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import VARIABLES, AnalysisOptions


def needed_columns(options: AnalysisOptions) -> list[str]:
    """Return the columns that a fit with ``options`` reads."""
    law = law_named(options.law)
    names = {options.x if name == "x" else name for name in law.variables}
    if law.method != "points":
        names |= {"N"}
    given = options.c_convention == "given"
    columns = [options.y]
    if "N" in names or ("C" in names and not given):
        columns.append("n_params")
    if "D" in names or ("C" in names and not given):
        columns.append("n_tokens")
    under_own_names = sorted((names | {options.weights or options.y}) - {*VARIABLES, *columns})
    return [*columns, *(["flops"] if "C" in names and given else []), *under_own_names]


def with_given_compute(options: AnalysisOptions, table: pd.DataFrame) -> AnalysisOptions:
    """Return ``options`` with C read from the column flops where that is what the table was planned by.

    N or tokens are not in the table, or the law is of isoFLOP lines and the column holds them: 6ND of their
    points scatters around the budget, so that one budget would count as several.
    """
    lacks = not {"n_params", "n_tokens"} <= set(table.columns)
    lines = law_named(options.law).method == "isoflop" and budgets_of(table) is not None
    if options.c_convention == "6nd" and (lacks or lines) and "flops" in table.columns:
        return dataclasses.replace(options, c_convention="given")
    return options


def variables_of(rows: pd.DataFrame, options: AnalysisOptions) -> dict[str, FloatArray]:
    """Return the law's variables, name -> [rows]; units: counts and FLOPs."""
    return {
        name: variable_of(rows, options.x if name == "x" else name, options)
        for name in law_named(options.law).variables
    }


def variable_of(rows: pd.DataFrame, name: str, options: AnalysisOptions) -> FloatArray:
    """Return N, D, C or a column of each row [rows]."""
    if name not in VARIABLES:
        return rows[name].to_numpy(float)
    if name == "C":
        return compute_of(rows, options.n_convention, options.c_convention)
    return parameters_of(rows, options.n_convention) if name == "N" else rows["n_tokens"].to_numpy(float)


def values_of(rows: pd.DataFrame, options: AnalysisOptions) -> FloatArray:
    """Return y of each row [rows]."""
    return rows[options.y].to_numpy(float)


def weights_of(rows: pd.DataFrame, options: AnalysisOptions) -> FloatArray | None:
    """Return the weight of each row [rows]; None where all count the same."""
    return rows[options.weights].to_numpy(float) if options.weights else None


def rung_size(options: AnalysisOptions) -> str:
    """Return the variable by which rungs are ordered: N, C or D, else the first of the law."""
    variables = law_named(options.law).variables
    if "x" in variables:
        return options.x
    return next((name for name in ("N", "C", "D") if name in variables), variables[0])
