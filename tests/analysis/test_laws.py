import numpy as np
import pytest

from analysis.data import DataError
from analysis.laws import LAWS, law_named

PARAMETERS = {
    "E": 1.7, "A": 400.0, "alpha": 0.34, "B": 410.0, "beta": 0.28,
    "Nc": 8.8e13, "aN": 0.076, "Dc": 5.4e13, "aD": 0.095, "G": 0.1, "a": 0.5,
}  # fmt: skip
VARIABLES = {
    "x": np.array([1e8, 1e9]),
    "N": np.array([1e6, 1e9]),
    "D": np.array([1e9, 1e10]),
    "C": np.array([1e17, 1e20]),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_gradient_is_the_derivative_of_the_prediction(law):
    """By the complex step, whose error is rounding alone."""
    parameters = {name: PARAMETERS[name] for name in law.parameters}
    gradient = law.gradient(parameters, VARIABLES)
    for column, name in enumerate(law.parameters):
        aside = law.predict({**parameters, name: parameters[name] + 1e-30j}, VARIABLES)
        np.testing.assert_allclose(gradient[:, column], aside.imag / 1e-30, rtol=1e-12)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_a_law_states_its_source_formula_and_units(law):
    assert "arXiv" in law.source
    assert set(law.units) == set(law.parameters)
    assert all(name in law.formula for name in law.parameters)


def test_the_law_of_kaplan_is_its_published_form():
    found = law_named("kaplan").predict(PARAMETERS, {"N": np.array([1e9]), "D": np.array([1e30])})
    assert found[0] == pytest.approx((8.8e13 / 1e9) ** 0.076)


def test_tied_exponents_are_one_parameter():
    assert law_named("gadre").parameters == ("E", "A", "alpha", "B")


def test_a_law_is_the_formula_that_it_prints():
    law = law_named("power-floor")
    assert law.formula == "L = E + A/x^alpha"
    found = law.predict({"E": 1.0, "A": 8.0, "alpha": 1 / 3}, {"x": np.array([8.0, 64.0])})
    np.testing.assert_allclose(found, [5.0, 3.0])


def test_an_unknown_law_is_answered_with_the_nearest():
    with pytest.raises(DataError, match="law is 'powr'; nearest: 'power'"):
        law_named("powr")
