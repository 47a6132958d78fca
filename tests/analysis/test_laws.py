import numpy as np
import pytest

from analysis.data import DataError
from analysis.laws import LAWS, law_named

PARAMETERS = {"E": 1.7, "A": 400.0, "alpha": 0.34, "B": 410.0, "beta": 0.28}
VARIABLES = {"x": np.array([1e8, 1e9]), "N": np.array([1e6, 1e9]), "D": np.array([1e9, 1e10])}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_gradient_is_the_derivative_of_the_prediction(law):
    parameters = {name: PARAMETERS[name] for name in law.parameters}
    gradient = law.gradient(parameters, VARIABLES)
    for column, name in enumerate(law.parameters):
        step = 1e-6 * parameters[name]
        high = law.predict({**parameters, name: parameters[name] + step}, VARIABLES)
        low = law.predict({**parameters, name: parameters[name] - step}, VARIABLES)
        np.testing.assert_allclose(gradient[:, column], (high - low) / (2 * step), rtol=1e-6)


def test_a_law_is_the_formula_that_it_prints():
    law = law_named("power-floor")
    assert law.formula == "L = E + A/x^alpha"
    found = law.predict({"E": 1.0, "A": 8.0, "alpha": 1 / 3}, {"x": np.array([8.0, 64.0])})
    np.testing.assert_allclose(found, [5.0, 3.0])


def test_an_unknown_law_is_answered_with_the_nearest():
    with pytest.raises(DataError, match="law is 'powr'; nearest: 'power'"):
        law_named("powr")
