"""The options of an analysis: one object for Python, the command line and the sweep file."""

import dataclasses
from typing import get_type_hints

import pytest

from scalevec.analysis import AnalysisOptions, DataError, fit
from scalevec.analysis.options import OptionChanges


def test_the_keywords_are_the_fields_of_the_options():
    assert get_type_hints(OptionChanges) == get_type_hints(AnalysisOptions)


def test_every_option_has_a_help_text():
    assert all(option.metadata["help"].endswith(".") for option in dataclasses.fields(AnalysisOptions))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("law", "cubic"),
        ("loss", "hubert"),
        ("interval", "t"),
        ("delta", 0.0),
        ("level", 1.0),
        ("bootstrap", 19),
        ("seed", -1),
        ("hold_out", False),
        *(("looks", looks) for looks in ((3, 2), (0, 2), (), (2, 2))),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(name, value):
    with pytest.raises(DataError, match=f"^{name} is .*; (allowed|nearest): "):
        AnalysisOptions(**{name: value})


def test_keywords_stand_over_the_options_object(sweep):
    options = AnalysisOptions(bootstrap=0, level=0.9)
    fitted = fit(sweep(), options, level=0.8)["baseline"]
    assert (fitted.options.level, fitted.n_bootstrap) == (0.8, 0)


def test_an_unknown_keyword_is_refused_with_the_nearest_one(sweep):
    with pytest.raises(DataError, match="option is 'lawn'; nearest: 'law'"):
        fit(sweep(), lawn="power")


def test_a_keyword_that_would_change_nothing_is_refused(sweep):
    with pytest.raises(DataError, match="option 'margin' changes nothing here; used are law, x, "):
        fit(sweep(), margin=100)


def test_settings_that_a_fit_would_pool_are_named(sweep):
    table = sweep().assign(depth=lambda rows: rows.seed)
    assert not any("depth" in warning for warning in fit(table, bootstrap=0)["baseline"].warnings)
    note = fit(table, bootstrap=0, settings=("depth",))["baseline"].interval_note
    assert "values of depth differ at one rung, by more than seed noise; choose one with where" in note
    with pytest.raises(DataError, match="no column 'width'"):
        fit(table, settings=("width",))
