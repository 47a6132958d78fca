"""Numbers, formulas and words as a page writes them."""

import pytest

from scalevec.analysis.registry import LAWS
from scalevec.analysis.report.html import formula, powers


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("C 3.629e+11 FLOPs", "C 3.63 × 10<sup>11</sup> FLOPs"),
        ("1e-05", "10<sup>−5</sup>"),
        ("4e+00", "4 × 10<sup>0</sup>"),
        ("run-1e+05x, v1.2e+3.4", "run-1e+05x, v1.2e+3.4"),
        ("<b>", "&lt;b&gt;"),
    ],
)
def test_a_power_of_ten_is_raised_and_all_else_stays(written, shown):
    assert powers(written) == shown


def test_a_formula_is_mathml():
    assert formula("L = E + A/N^alpha") == (
        '<math alttext="L = E + A/N^alpha"><mrow>'
        "<mi>L</mi><mo>=</mo><mi>E</mi><mo>+</mo><mfrac><mrow><mi>A</mi></mrow><mrow>"
        "<msup><mrow><mi>N</mi></mrow><mrow><mi>α</mi></mrow></msup></mrow></mfrac></mrow></math>"
    )


def test_parentheses_stand_where_the_formula_needs_them():
    assert "<mo>(</mo>" in formula("(A + B)*C")
    assert "<mo>(</mo>" not in formula("A*B + C/(D + E)")


@pytest.mark.parametrize("law", LAWS)
def test_every_law_is_written_as_mathml(law):
    assert formula(f"L = {LAWS[law].formula}").startswith("<math ")


def test_what_is_no_formula_is_shown_as_it_is_written():
    assert formula("L = <A ? B") == "<code>L = &lt;A ? B</code>"
