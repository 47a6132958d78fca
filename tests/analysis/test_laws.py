import numpy as np
import pytest

from scalevec.analysis.errors import DataError
from scalevec.analysis.laws import Law, Term, law_named
from scalevec.analysis.registry import LAWS, LawEntry

PARAMETERS = {
    "E": 1.7, "A": 400.0, "alpha": 0.34, "B": 410.0, "beta": 0.28,
    "Nc": 8.8e13, "aN": 0.076, "Dc": 5.4e13, "aD": 0.095, "G": 0.1, "a": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("law", [law_named(name) for name in LAWS], ids=LAWS)
def test_a_law_states_its_source_formula_and_units(law):
    assert "arXiv" in law.source
    assert set(law.units) == set(law.parameters)
    assert all(name in law.formula for name in law.parameters)


def test_the_law_of_kaplan_is_its_published_form():
    actual = law_named("kaplan").predict(PARAMETERS, {"N": np.array([1e9]), "D": np.array([1e30])})
    assert actual[0] == pytest.approx((8.8e13 / 1e9) ** 0.076)


def test_tied_exponents_are_one_parameter():
    assert law_named("gadre").parameters == ("E", "A", "alpha", "B")


def test_a_law_is_the_formula_that_it_prints():
    law = law_named("power-floor")
    assert law.formula == "L = E + A/x^alpha"
    actual = law.predict({"E": 1.0, "A": 8.0, "alpha": 1 / 3}, {"x": np.array([8.0, 64.0])})
    np.testing.assert_allclose(actual, [5.0, 3.0])


def test_an_unknown_law_is_answered_with_the_nearest():
    with pytest.raises(DataError, match="law is 'powr'; nearest: 'power'"):
        law_named("powr")


@pytest.mark.parametrize("name", LAWS)
def test_the_formula_of_a_law_is_that_of_its_entry(name: str):
    assert law_named(name).formula.partition(" = ")[2] == LAWS[name].formula.partition(";")[0]


def test_a_law_of_a_user_prints_its_terms():
    terms = (Term("E"), Term("A", "N", "alpha"), Term("B", "D"), Term("G", "C", "a", rising=True))
    assert Law("mine", terms, "here").formula == "L = E + A/N^alpha + B/D + G C^a"


def test_a_law_with_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch):
    law = Law("unique", (Term("A", "U", "alpha"),), "none")
    monkeypatch.setitem(LAWS, "unique", LawEntry("A/U^alpha", "none", factory="somewhere:LAW"))
    monkeypatch.setattr("scalevec.analysis.laws.load", lambda factory: law)
    with pytest.raises(DataError, match="a variable of law unique is 'U'; allowed: C, D, N, x"):
        law_named("unique")


def test_a_variable_without_an_exponent_has_its_unit_once():
    law = law_named("E + A/N")
    assert law.units == {"E": "nats/token", "A": "nats/token x parameters"}


def test_tokens_that_do_not_repeat_are_all_worth_their_number():
    law, of_corpus = law_named("data-constrained"), np.array([1e9])
    parameters = {"E": 1.7, "A": 400.0, "alpha": 0.34, "B": 410.0, "beta": 0.28, "R": 15.0}
    variables = {"N": np.array([1e8]), "D": np.array([2e8])}
    in_corpus = law.predict(parameters, {**variables, "unique_tokens": of_corpus})
    alone = law_named("chinchilla").predict(parameters, variables)
    np.testing.assert_allclose(in_corpus, alone)
