import numpy as np
import pandas as pd
import pytest
from tests.analysis.planted import EXPONENT, isoflops

from scalevec.analysis import DataError, fit


def test_the_exponent_of_the_optimal_size_is_recovered():
    (fitted,) = fit(isoflops(), law="isoflop", bootstrap=0).values()
    assert fitted.parameters["a"] == pytest.approx(EXPONENT, abs=0.003)
    assert fitted.formula == "N* = G C^a"
    assert len(fitted.optima) == 5
    assert abs(fitted.hold_out["relative_error"]) < 0.02


def test_one_budget_is_refused():
    with pytest.raises(DataError, match="needs two budgets"):
        fit(isoflops().iloc[:9], law="isoflop")


def test_budgets_of_the_column_flops_are_the_lines_of_a_table():
    """Counted FLOPs are not 6ND: by 6ND one budget counts as several, and the exponent is another one."""
    budgets, truth = np.repeat([1e18, 3e18, 1e19, 3e19, 1e20, 3e20], 9), 0.43
    best = 0.3 * budgets**truth
    sizes = best * np.tile(np.geomspace(0.2, 5, 9), 6)
    tokens = budgets / 6 / sizes / (1 + 6e6 / sizes)
    table = pd.DataFrame({"n_params": sizes, "n_tokens": tokens, "flops": budgets})
    (fitted,) = fit(
        table.assign(loss=2.5 + 0.05 * np.log(sizes / best) ** 2), law="isoflop", bootstrap=0
    ).values()
    assert fitted.parameters["a"] == pytest.approx(truth, rel=1e-9)
    expected = pytest.approx([1e18, 3e18, 1e19, 3e19, 1e20, 3e20])
    assert [optimum.budget for optimum in fitted.optima] == expected
    assert fitted.options.c_convention == "given"
    first = fitted.optima[0]
    assert first.d_star == pytest.approx(1e18 / 6 / first.n_star / (1 + 6e6 / first.n_star), rel=0.02)
    assert first.tokens_per_parameter == pytest.approx(first.d_star / first.n_star)
    words = f"D* {first.d_star:.4g} ({first.tokens_per_parameter:.3g} tokens per parameter)"
    assert words in fitted.summary()


def test_six_nd_holds_where_flops_are_of_single_rows():
    table = isoflops()
    (plain,) = fit(table, law="isoflop", bootstrap=0).values()
    (with_flops,) = fit(table.assign(flops=range(1, len(table) + 1)), law="isoflop", bootstrap=0).values()
    assert plain.parameters == with_flops.parameters
