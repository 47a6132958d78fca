"""How numbers and names are written for people: short, printable, told apart."""

import pandas as pd
import pytest

from comparisons import CHEAP
from scalevec.analysis import DataError, compare, fit, render, table, write_figures
from scalevec.analysis.formatting import LONGEST_NAME, short_names, signed, span
from scalevec.analysis.report import html
from scalevec.analysis.report.text import verdict_table

LONG = [f"7b\\width=256,optim={name},{name * 38}sched=wsd,tag=7" for name in ("muon", "soap")]


@pytest.fixture
def results(sweep) -> pd.DataFrame:
    """Three arms, two of which have names of 200 characters."""
    return sweep({"adamw": 0.0, LONG[0]: -0.05, LONG[1]: -0.1})


def test_names_that_are_shortened_to_the_same_text_stay_told_apart():
    shown = short_names([*LONG, "adamw", "x" * LONGEST_NAME])
    assert list(shown) == LONG
    assert max(map(len, shown.values())) <= LONGEST_NAME
    assert len({*shown.values()}) == 2


def test_figures_show_short_names_and_tell_the_whole_ones(results, tmp_path, recwarn):
    only = ["loss", "differences"]
    written = write_figures(results, tmp_path, reference=LONG[0], formats=["svg"], only=only, **CHEAP)
    assert not [str(warning.message) for warning in recwarn if "layout" in str(warning.message)]
    assert "loss" in written.captions
    assert all(LONG[1] in caption for caption in written.captions.values())


def test_a_table_has_the_whole_names_below_and_in_its_records(results):
    contents = table(results, reference="adamw", **CHEAP)
    text = render(contents, "markdown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert max(map(len, rows)) < 160
    in_markdown = LONG[0].replace("\\", "\\\\")
    assert f"stands for {in_markdown}." in text
    assert LONG[0] in render(contents, "csv")


def test_the_lines_of_a_verdict_stay_within_a_terminal(results):
    lines = verdict_table(list(compare(results, "adamw", **CHEAP).values())).splitlines()
    assert max(len(line) for line in lines if "stands for" not in line) <= 120
    assert sum(f"stands for {name}." in line for line in lines for name in LONG) == 2


def test_a_page_shows_short_names_and_says_what_they_stand_for(results, tmp_path, monkeypatch):
    monkeypatch.setattr(html, "page_figures", lambda *_: {})
    html.write_report(results, tmp_path / "r.html", name="long", reference="adamw", **CHEAP)
    page = (tmp_path / "r.html").read_text()
    assert f"{short_names(LONG)[LONG[0]]} stands for {LONG[0]}." in page


@pytest.mark.parametrize(
    ("value", "beside", "text"),
    [
        (-2.93e-7, None, "−2.9e−07"),
        (2e-5, (-1e-5, 4e-5), "+2.0e−05"),
        (2e-5, (-0.001, 0.002), "+0.0000"),
        (1e-17, None, "+0.0000"),
        (0.0123, None, "+0.0123"),
    ],
)
def test_a_difference_has_two_digits_where_all_that_is_shown_would_be_zero(value, beside, text):
    assert signed(value, beside) == text


def test_an_interval_has_two_digits_where_both_ends_would_be_zero():
    assert span((-3e-7, 4e-5)) == "−3.0e−07 to +4.0e−05"
    assert span((-3e-7, 0.01)) == "−0.0000 to +0.0100"


def test_control_characters_of_a_column_name_are_shown_as_escapes():
    table = pd.DataFrame({"n_params": [1.0], "n_tokens": [1.0], "\x1b[2Jloss\x01": [1.0]})
    with pytest.raises(DataError) as refused:
        fit(table)
    assert str(refused.value).isprintable()
    assert r"\x1b[2J" in str(refused.value)


def test_a_message_is_cut_to_a_length_that_is_read():
    table = pd.DataFrame({f"column_{i}_{'x' * 300}": [1.0] for i in range(200)})
    with pytest.raises(DataError) as refused:
        fit(table)
    assert len(str(refused.value)) < 1_100
