"""Laws: their formulas, units and sources, and their lines in the registry."""

import re

import numpy as np
import pytest

from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.registry import FIGURES, LAWS
from support import CHECKOUT

PARAMETERS = {
    "E": 1.7, "A": 400.0, "alpha": 0.34, "B": 410.0, "beta": 0.28,
    "Nc": 8.8e13, "aN": 0.076, "Dc": 5.4e13, "aD": 0.095, "G": 0.1, "a": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("law", [law_named(name) for name in LAWS], ids=LAWS)
def test_a_law_states_its_source_formula_and_units(law):
    assert "arXiv" in law.source
    assert set(law.units("nats/token", "C")) == set(law.parameters)
    assert all(name in law.formula for name in law.parameters)


def test_the_law_of_kaplan_is_its_published_form():
    actual = law_named("kaplan").predict(PARAMETERS, {"N": np.array([1e9]), "D": np.array([1e30])})
    assert actual[0] == pytest.approx((8.8e13 / 1e9) ** 0.076)


def test_a_law_is_the_formula_that_it_prints():
    law = law_named("power-floor")
    assert law.formula == "L = E + A/x^alpha"
    actual = law.predict({"E": 1.0, "A": 8.0, "alpha": 1 / 3}, {"x": np.array([8.0, 64.0])})
    np.testing.assert_allclose(actual, [5.0, 3.0])


def test_a_coefficient_has_the_unit_of_the_table_times_that_of_its_variable():
    units = {"E": "bits/byte", "A": "bits/byte x parameters", "B": "bits/byte x tokens^beta", "beta": "none"}
    assert law_named("E + A/N + B/D^beta").units("bits/byte", "C") == units


def test_the_coefficients_of_power_terms_are_above_zero_and_the_constant_is_the_floor():
    law = law_named("L0 + A/N^alpha + G C^a")
    assert (law.positive, law.floor) == (("L0", "A", "G"), "L0")
    assert law_named("a + b*log(N)").positive == ()


def test_tokens_that_do_not_repeat_are_all_worth_their_number():
    law, of_corpus = law_named("data-constrained"), np.array([1e9])
    parameters = {"E": 1.7, "A": 400.0, "alpha": 0.34, "B": 410.0, "beta": 0.28, "R": 15.0}
    variables = {"N": np.array([1e8]), "D": np.array([2e8])}
    in_corpus = law.predict(parameters, {**variables, "unique_tokens": of_corpus})
    alone = law_named("chinchilla").predict(parameters, variables)
    np.testing.assert_allclose(in_corpus, alone)


def test_every_law_is_what_its_line_says():
    for name, entry in LAWS.items():
        assert law_named(name).formula in entry.description
        assert not re.search(r"\bx\b", formula_of(AnalysisOptions(law=name, x="N")))


def test_the_documentation_names_every_figure():
    text = (CHECKOUT / "docs" / "analysis.md").read_text(encoding="utf-8")
    assert [name for name in FIGURES if f"`{name}`" not in text] == []
