import random

import numpy as np
import pandas as pd
import pytest
from tests.formulas import COLUMNS, garbled, written

from scalevec import analysis
from scalevec.analysis.errors import DataError
from scalevec.analysis.formula.formula import LONGEST_FORMULA
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.law_points import points_of
from scalevec.analysis.solver.newton import evaluate

RNG = np.random.default_rng(0)
N, D = np.exp(RNG.uniform(17, 22, 24)), np.exp(RNG.uniform(21, 26, 24))
TABLE = pd.DataFrame({"n_params": N, "n_tokens": D, "width": N**0.3, "cluster": np.arange(24).astype(str)})
TABLE["loss"] = (1.69 + 406.4 / N**0.34 + 410.7 / D**0.28) * np.exp(RNG.normal(0, 1e-3, 24))
ALL_POSITIVE = "; positive E, A, alpha, B, beta"


def fitted(law: str, **options):
    return analysis.fit(TABLE, law=law, **{"bootstrap": 0, "loss": "l2", **options}).only


@pytest.mark.parametrize(
    "text", ["E + A/N^alpha + B/D^beta", "E+A / N^alpha + B/D^beta" + "; positive E, A, B"]
)
def test_a_formula_gives_the_fit_of_the_law_that_it_writes(text: str):
    ours, named = fitted(text, bootstrap=40), fitted("chinchilla", bootstrap=40)
    assert ours.parameters == pytest.approx(named.parameters, rel=1e-6)
    assert ours.intervals["alpha"] == pytest.approx(named.intervals["alpha"], rel=1e-4)
    assert ours.hold_out["relative_error"] == pytest.approx(named.hold_out["relative_error"], abs=1e-8)
    assert ours.optimality < 1e-9


def test_a_column_of_the_table_is_a_variable():
    ours, named = fitted("E + A/width^alpha + B/D^beta"), fitted("chinchilla")
    assert ours.parameters["alpha"] == pytest.approx(named.parameters["alpha"] / 0.3, rel=1e-6)
    assert ours.formula == "L = E + A/width^alpha + B/D^beta"


def test_a_parameter_without_a_sign_may_be_negative():
    table = TABLE.assign(score=3.0 - 0.1 * np.log(TABLE.width))
    fit = analysis.fit(table, law="a + b*log(width)", y="score", bootstrap=0, loss="l2").only
    assert fit.parameters == pytest.approx({"a": 3.0, "b": -0.1})


def test_arms_are_compared_by_a_formula_over_columns():
    sizes, ratio = np.repeat(np.geomspace(1e8, 1e10, 6), 4), np.tile([5, 20, 80, 300], 6)
    table = pd.DataFrame({"n_params": sizes, "n_tokens": sizes * ratio, "width": sizes**0.3})
    loss = 1.69 + 406.4 / sizes**0.34 + 410.7 / (sizes * ratio) ** 0.28
    arms = [table.assign(arm=arm, loss=gain * loss) for arm, gain in (("a", 1.0), ("b", 0.97))]
    law = "E + A/width^alpha + B/D^beta; positive E, A, B"
    table = pd.concat(arms, ignore_index=True)
    compared = analysis.compare(table, reference="a", law=law, bootstrap=0, cluster="row").only
    assert compared.withheld
    assert compared.loss_difference.mean < 0


def test_a_start_leads_to_parameters_far_from_one():
    table = TABLE.assign(loss=2 + np.exp(-TABLE.width / 5e3))
    law = "E + exp(-width/w); positive E, w; start w = 2e3"
    fit = analysis.fit(table, law=law, bootstrap=0, loss="l2").only
    assert fit.parameters == pytest.approx({"E": 2.0, "w": 5e3})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("E + A/ /N", "expected a number"),
        ("E + A/log(N/N)^a", r"log\(log\(N / N\)\) is no finite number at the data \(point 1"),
        ("E + 1/0", "division by zero"),
        ("E + A/widht^a", "no column 'widht'; nearest: 'width'"),
        ("E + abs(N)", "no function 'abs' of 1; allowed: exp of 1, "),
        ("__import__('os')", "no function '__import__'"),
        ("E + A", "it has no column"),
        ("E + (A/N", r"'\(' was never closed"),
        ("E + A/N # fast", "'#' is not allowed"),
        ("exp(" * 50 + "N" + ")" * 50, "nested more than 30 deep"),
        ("E + " * 200 + "N", f"allowed: {LONGEST_FORMULA}"),
        ("+".join(f"p{i}*N" for i in range(13)), "it has 13 parameters"),
        ("E*N; positive N", "positive: N is a column"),
        ("E*N; start E = x", "start 'E = x': expected a finite number"),
        ("E*N; positive E; start E = -1", "starts at zero or below"),
        ("E*N; range E", "'range': expected one of columns, positive, start, fix, bounds"),
    ],
)
def test_what_is_no_law_is_refused(text: str, why: str):
    with pytest.raises(DataError, match=why):
        fitted(text)


def problem(text: str):
    """The problem of a random formula with a point at which it is above zero."""
    law = law_named(f"{text}; columns width" if "width" in text else text)
    variables = {name: RNG.uniform(0.5, 3, 6) for name in COLUMNS}
    at = points_of(law, {name: variables[name] for name in law.variables})
    stated = at.problem(RNG.uniform(1, 2, 6), None, AnalysisOptions(loss="l2"))
    return stated, np.random.default_rng(2).uniform(0.3, 1.5, (1, len(law.parameters)))


def test_gradient_and_hessian_of_random_formulas_are_their_derivatives():
    draw, n_checked = random.Random(0), 0
    while n_checked < 60:
        try:
            stated, theta = problem(written(draw))
        except DataError:
            continue
        k = theta.shape[1]
        state = evaluate(stated, theta)
        gradient, hessian = stated.system(state, np.zeros(1))
        aside = theta + 1e-5 * np.concatenate([np.eye(k), -np.eye(k)])
        states = [evaluate(stated, row[None]) for row in aside]
        slopes = np.stack([stated.system(each, np.zeros(1))[0][0] for each in states])
        values = np.array([evaluate(stated, row[None]).objective[0] for row in aside])
        if not np.isfinite(values).all() or max(np.abs(hessian).max(), np.abs(gradient).max()) > 1e3:
            continue
        size = 1 + np.abs(hessian).max() + state.objective[0]
        np.testing.assert_allclose(gradient[0], (values[:k] - values[k:]) / 2e-5, atol=1e-5 * size)
        np.testing.assert_allclose(hessian[0], (slopes[:k] - slopes[k:]) / 2e-5, atol=1e-4 * size)
        n_checked += 1


@pytest.mark.parametrize("n_texts", [20, pytest.param(5_000, marks=pytest.mark.nightly)])
def test_any_text_is_fitted_or_refused(n_texts: int):
    draw = random.Random(1)
    for _ in range(n_texts):
        text = garbled(draw) if draw.random() < 0.6 else written(draw, 5)
        try:
            fitted(text, hold_out="none")
        except DataError as error:
            assert len(str(error)) < 1_100  # noqa: PT017


def test_names_that_python_keeps_for_itself_are_parameters_too():
    assert law_named("a/N^lambda + b/D^µ").parameters == ("a", "lambda", "b", "µ")
