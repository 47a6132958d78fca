import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import DataError, write_report

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Collects the text, the attributes that could load something, and whether tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.loads: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.loads += [
            v for k, v in attributes if k in ("src", "href", "xlink:href", "action", "data", "srcset")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page(path: Path, table: pd.DataFrame, **options) -> Page:
    write_report(path, table, **{"name": "quickstart", "reference": "baseline", **options})
    return Page(path.read_text(encoding="utf-8"))


def test_the_verdict_comes_first_with_what_would_change_it(tmp_path, sweep):
    text = page(tmp_path / "r.html", sweep(), margin=0.005).text
    places = [
        text.index(words) for words in ("unified is better", "What would change it", "By rung", "Figures")
    ]
    assert places == sorted(places)


def test_a_report_opens_offline(tmp_path, sweep, choice):
    found = page(tmp_path / "r.html", sweep(), choices=[choice("baseline"), choice("unified")])
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert all(link.startswith("#") for link in found.loads)
    assert found.tags.isdisjoint({"script", "link", "iframe", "img", "object", "embed"})
    assert not re.search(r"@import|url\((?!#)", text)
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert found.open == []


def test_names_of_users_are_escaped(tmp_path, sweep, choice):
    name = '<script>alert("1")</script>'
    found = page(
        tmp_path / "r.html",
        sweep({"baseline": 0.0, name: -0.03}),
        name="<b>sweep</b>",
        choices=[choice("baseline"), choice(name)],
        facts={"<i>commit</i>": "<u>abc</u>"},
    )
    assert found.tags.isdisjoint({"script", "i", "u"})
    assert name in found.text
    assert "<b>sweep</b>" in found.text


def test_the_same_results_give_the_same_page(tmp_path, sweep):
    for name in ("a.html", "b.html"):
        page(tmp_path / name, sweep())
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_refused_table_leaves_the_old_report_and_nothing_else(tmp_path, sweep):
    path = tmp_path / "r.html"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(DataError):
        page(path, sweep(), reference="none")
    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_the_page_says_which_conventions_it_uses(tmp_path, sweep):
    table = sweep()
    text = page(
        tmp_path / "r.html", table.assign(flops_counted=9.0 * table["n_params"]), c_convention="counted"
    ).text
    assert "FLOPs counted from the architecture" in text
    assert "non-embedding matrix parameters without scale vectors" in text


def test_a_tuned_baseline_answers_that_it_was(tmp_path, sweep, choice):
    choices = [
        choice("baseline"),
        choice("unified"),
        choice("baseline", "150k", grid=[], losses=[], status="carried"),
    ]
    found = page(tmp_path / "r.html", sweep(), choices=choices)
    assert "Yes: at 25k the learning rate of baseline was tuned to an optimum inside its grid" in found.text
    assert "every arm was given the same grid and the same tuning seeds" in found.text
    assert "At 150k the learning rate was carried" in found.text
    assert "Nor was it checked by a step to each side" in found.text
    assert "+0.0500 / +0.0300" in found.text


def test_another_grid_for_an_arm_is_said(tmp_path, sweep, choice):
    choices = [choice("baseline"), choice("unified", grid=[1e-3, 2e-3, 4e-3])]
    assert "on another grid than unified" in page(tmp_path / "r.html", sweep(), choices=choices).text


def test_other_tuning_seeds_for_an_arm_are_said(tmp_path, sweep, choice):
    choices = [choice("baseline"), choice("unified", seeds=[100, 101])]
    assert "on other seeds than unified" in page(tmp_path / "r.html", sweep(), choices=choices).text


def test_a_censored_baseline_answers_no(tmp_path, sweep, choice):
    choices = [choice("baseline", losses=[3.9, 3.8, 3.7], status="censored"), choice("unified")]
    assert (
        "No: at 25k the best rate of baseline lies at the edge"
        in page(tmp_path / "r.html", sweep(), choices=choices).text
    )


def test_without_a_record_of_tuning_the_page_claims_nothing(tmp_path, sweep):
    assert "cannot be answered from it" in page(tmp_path / "r.html", sweep()).text


@pytest.mark.parametrize("law", ["power", pytest.param("power-floor", marks=pytest.mark.slow)])
def test_a_short_ladder_carries_the_warning_onto_the_page(tmp_path, sweep, law: str):
    assert "compare levels, not exponents" in page(tmp_path / "r.html", sweep(), law=law).text


def test_a_sweep_that_has_just_begun_has_a_page(tmp_path, sweep):
    table = sweep()
    later = table["rung"] != "25k"
    table.loc[later, ["status", "loss"]] = ["pending", np.nan]
    text = page(tmp_path / "r.html", table).text
    assert "Not fitted: arm 'baseline': all points have one value of C" in text


def test_a_sweep_without_a_finished_trial_has_a_page(tmp_path, sweep):
    text = page(tmp_path / "r.html", sweep().assign(status="pending", loss=np.nan)).text
    assert "No verdict on unified" in text


def test_a_diverged_trial_is_on_the_page(tmp_path, sweep, diverge):
    text = page(tmp_path / "r.html", diverge(sweep(), "unified", "55k", 1)).text
    assert "unified diverged and baseline did not: 55k, seed 1" in text


def test_repeated_data_are_said(tmp_path, sweep):
    table = sweep()
    text = page(tmp_path / "r.html", table.assign(epochs=np.where(table["rung"] == "150k", 2.5, 0.5))).text
    assert "Data were repeated at 150k (up to 2.50 epochs)" in text


def test_curves_of_other_arms_are_left_out(tmp_path, sweep):
    curves = pd.DataFrame(
        {"trial_id": "a", "arm": "other", "rung": "25k", "tokens": [1, 2], "loss": [3.0, 2.0]}
    )
    assert "Training loss (" not in page(tmp_path / "r.html", sweep(), curves=curves).text


def test_curves_need_their_columns(tmp_path, sweep):
    with pytest.raises(DataError, match=r"no column 'tokens'.*nearest: 'token'"):
        page(
            tmp_path / "r.html",
            sweep(),
            curves=pd.DataFrame(
                {"trial_id": ["a"], "arm": "unified", "rung": "25k", "token": 1, "loss": 2.0}
            ),
        )
