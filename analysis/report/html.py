"""One self-contained HTML page: answers, figures, tuning, laws, trials, and how it was done."""

import ast
import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.data.tidy import checked
from scalevec.analysis.data.where import select
from scalevec.analysis.errors import DataError, printable
from scalevec.analysis.figures.drawing import page_figures
from scalevec.analysis.figures.figure_input import FigureInput, figure_input
from scalevec.analysis.figures.files import write_atomically
from scalevec.analysis.formatting import footnotes, named_with_unit, shortened_in
from scalevec.analysis.formula.formula import read
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import (
    C_CONVENTIONS,
    N_CONVENTIONS,
    AnalysisOptions,
    OptionChanges,
    chosen_options,
)
from scalevec.analysis.report import sections
from scalevec.analysis.report.text import details
from scalevec.analysis.tables import scaling
from scalevec.analysis.tables.render import POWER_OF_TEN, render

TEMPLATES = Path(__file__).resolve().parent / "page"
FIGURES_SHOWN = ("differences", "loss", "curves", "multipliers", "tuning")
"""The figures of a page; the last stands in a section of its own."""
_GREEK = dict(zip(("alpha", "beta", "gamma", "delta", "eta", "lambda"), "αβγδηλ", strict=True))
_STRENGTH: dict[type[ast.operator], int] = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2}
_SIGN: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "−", ast.Mult: "\N{INVISIBLE TIMES}"}


def write_report(
    results: pd.DataFrame,
    path: Path | str,
    *,
    reference: str,
    choices: Sequence[Mapping[str, Any]] = (),
    curves: pd.DataFrame | None = None,
    name: str = "results",
    facts: Mapping[str, object] | None = None,
    options: AnalysisOptions | None = None,
    **changes: Unpack[OptionChanges],
) -> None:
    """Write the report of ``results`` to ``path``: one HTML file that opens offline, whole or not at all.

    Args:
        results: Tidy rows, one per trial.
        path: The file; an older one is replaced.
        reference: The arm that the others are compared with; alone it has a page without a verdict.
        choices: The entries of a sweep's tuning.json.
        curves: Training curves: trial_id, arm, rung, seed, tokens, loss (nats/token).
        name: The title, for example the name of the sweep.
        facts: Provenance by name; text of several lines keeps them.
        options: How the arms are compared, as for :func:`compare`.
        **changes: Fields of :class:`AnalysisOptions` that replace those of ``options``.

    Raises:
        DataError: The results cannot be compared, or an option is not allowed.

    Example:
        >>> write_report(results, "report.html", reference="baseline", name="mine")  # doctest: +SKIP
    """
    chosen = chosen_options(options, changes)
    figures = figure_input(results, reference, chosen, choices, curves)
    table = shortened_in(checked(select(results, chosen.where), cluster=chosen.cluster), figures.names)
    whole = {"names that are shortened": "\n".join(footnotes(figures.names))} if figures.names else {}
    told = {str(key): str(value) for key, value in {**(facts or {}), **whole}.items()}
    context = _of_arms(figures) | _of_trials(figures, table)
    context |= {"name": name, "remarks": figures.trials.chosen_rows(), "facts": told}
    context["figures"] = page_figures(figures, FIGURES_SHOWN)
    context["lead"] = sections.lead(figures.trials, context["comparisons"], told.get("text", ""))
    page = _environment().get_template("page.html.jinja").render(context)
    write_atomically(Path(path), page.encode())


def _of_arms(figures: FigureInput) -> dict[str, Any]:
    """What the page says of the arms: the plan, answers with their caveats, those of all arms apart."""
    trials, (comparisons, by_laws) = figures.trials, figures.comparisons
    every: list[Comparison] = [*comparisons, *by_laws]
    shared = [text for text in every[0].warnings if all(text in c.warnings for c in every)] if every else []
    return {
        "reference": trials.reference,
        "state": sections.plan_state(comparisons, trials.interim(), by_laws),
        "is_interim": bool(trials.interim()),
        "comparisons": every,
        "glance": [sections.answers(family) for family in (comparisons, by_laws) if family],
        "details": {comparison.arm: details(comparison) for comparison in every},
        "shared": shared,
        "loss_name": named_with_unit(trials.options.y, trials.options.unit),
    }


def _of_trials(figures: FigureInput, table: pd.DataFrame) -> dict[str, Any]:
    """What the page says of tuning, laws, trials and costs, and by which conventions."""
    trials, options = figures.trials, figures.trials.options
    laws, unfitted = None, ""
    try:
        laws = scaling.build(trials)
    except DataError as error:
        unfitted = str(error)
    return {
        "tuning": sections.tuning_rows(figures.choices),
        "laws": laws,
        "unfitted": unfitted,
        "formula_text": formula_of(options),
        "law": law_named(options.law),
        "trials": sections.trials_table(table, trials),
        "costs": sections.costs(table),
        "told": sections.told_of_trials(table),
        "n_words": N_CONVENTIONS[options.n_convention],
        "c_words": C_CONVENTIONS[options.c_convention],
    }


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(powers=powers, formula=formula, csv=partial(render, form="csv"))
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    # What a page's policy calls a script by, so that no other one runs.
    script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(script=script, script_hash=script_hash)
    return environment


def powers(text: object) -> Markup:
    """``3.629e+11`` as 3.63 × 10 with a raised 11; everything else is escaped."""
    return Markup(POWER_OF_TEN.sub(_power, str(escape(text))))


def _power(number: re.Match[str]) -> str:
    factor, sign = f"{float(number[1]):.3g}", "−" if number[2] == "-" else ""
    return f"{'' if factor == '1' else f'{factor} × '}10<sup>{sign}{number[3]}</sup>"


def formula(text: str) -> Markup:
    """A formula such as ``L = E + A/N^alpha`` as MathML; as code where it is written otherwise."""
    law, *clauses = text.split(";")
    try:
        sides = [_mathml(read(part)) for part in law.split(" = ")]
    except (ValueError, KeyError, TypeError):
        return _tag("code", text)
    shown = _tag("mrow", _tag("mo", "=").join(sides))
    after = f"; {';'.join(clauses).strip()}" if clauses else ""
    return Markup('<math alttext="{}">{}</math>{}').format(law.strip(), shown, after)


def _mathml(node: ast.expr, within: int = 0) -> Markup:
    """``node`` in parentheses where it binds less than what it is ``within``."""
    match node:
        case ast.BinOp(left, ast.Div(), right):
            return _tag("mfrac", *(_tag("mrow", _mathml(part)) for part in (left, right)))
        case ast.BinOp(left, ast.Pow(), right):
            return _tag("msup", *(_tag("mrow", _mathml(*part)) for part in ((left, 3), (right,))))
        case ast.BinOp(left, operator, right):
            strength, sign = _STRENGTH[type(operator)], _SIGN[type(operator)]
            last = _mathml(right, strength + (sign == "−"))
            inner = _mathml(left, strength) + _tag("mo", sign) + last
            return inner if strength >= within else _bracketed(inner)
        case ast.UnaryOp(ast.USub(), operand):
            return _tag("mo", "−") + _mathml(operand, 2)
        case ast.Call(ast.Name(name), arguments):
            inner = _tag("mo", ",").join(_mathml(argument) for argument in arguments)
            return _tag("mi", name) + _bracketed(inner)
        case ast.Name(written):
            name, _, below = _GREEK.get(written, written).partition("_")
            shown = _tag("mi", name)
            return _tag("msub", shown, _tag("mi", below.replace("_", " "))) if below else shown
        case ast.Constant(value):
            return _tag("mn", value)
    raise TypeError(f"{ast.dump(node)} is no part of a formula")


def _tag(name: str, *parts: object) -> Markup:
    return Markup(f"<{name}>{{}}</{name}>").format(Markup("").join(map(escape, parts)))


def _bracketed(inner: Markup) -> Markup:
    return _tag("mrow", _tag("mo", "("), inner, _tag("mo", ")"))
