import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from comparisons import CHEAP, compared
from scalevec.analysis import DataError, compare, write_report
from scalevec.analysis.report import html

INLINE = {"a", "sup"}
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
        self.words.append("" if tag in INLINE else " ")
        loading = ("src", "href", "xlink:href", "action", "data", "srcset")
        self.loads += [value for name, value in attributes if name in loading]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.words.append("" if tag in INLINE else " ")

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


@pytest.fixture
def undrawn(monkeypatch):
    """Pages without figures, which take most of the time, for tests of their words."""
    monkeypatch.setattr(html, "page_figures", lambda *_: [])


def page(path: Path, table: pd.DataFrame, **options) -> Page:
    cheap = {"name": "quickstart", "reference": "baseline", "bootstrap": 20, "law": "power"}
    write_report(table, path, **cheap | options)
    return Page(path.read_text(encoding="utf-8"))


def test_the_verdict_comes_first_with_its_four_lines(tmp_path, sweep):
    text = page(tmp_path / "r.html", sweep(), margin=0.005).text
    lines = ("verdict scope", "At sizes", "With scale", "Fair", "Fitted laws")
    places = [text.index(words) for words in lines]
    assert places == sorted(places)


def test_arms_without_a_pair_are_judged_by_their_laws_with_the_figures_that_need_no_pair(tmp_path, sweep):
    table = sweep({"baseline": 0.0, "unified": -0.2}, seeds=tuple(range(5)), noise=0.002)
    unified = table["arm"] == "unified"
    table["rung"] += unified.map({True: " wider", False: ""})
    text = page(tmp_path / "r.html", table, bootstrap=100).text
    assert "No pairs: the arms are compared by the laws fitted to them." in text
    assert "lower along the whole line" in text
    assert text.index("better N ") < text.index("Figure 1.")


def test_a_report_opens_offline(tmp_path, sweep, choice):
    report = page(tmp_path / "r.html", sweep(), choices=[choice("baseline"), choice("unified")])
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert all(link.startswith("#") for link in report.loads)
    assert report.tags.isdisjoint({"link", "iframe", "img", "object", "embed"})
    assert not re.search(r"@import|url\((?!#)", text)
    allowed = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) <= allowed
    assert report.open == []


def test_names_of_users_are_escaped(tmp_path, sweep, choice):
    name = '<script>alert("1")</script>'
    report = page(
        tmp_path / "r.html",
        sweep({"baseline": 0.0, name: -0.03}),
        name="<b>sweep</b>",
        choices=[choice("baseline"), choice(name)],
        facts={"<i>commit</i>": "<u>abc</u>"},
    )
    assert report.tags.isdisjoint({"i", "u"})
    assert (tmp_path / "r.html").read_text(encoding="utf-8").count("<script") == 1
    assert name in report.text
    assert "<b>sweep</b>" in report.text


def test_a_refused_table_leaves_the_old_report_and_nothing_else(tmp_path, sweep):
    path = tmp_path / "r.html"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(DataError):
        page(path, sweep(), reference="none")
    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


@pytest.mark.usefixtures("undrawn")
def test_fields_that_were_tuned_together_are_named_in_their_rows(tmp_path, sweep, choice):
    beta = {"field": "beta2", "axis": "log(1-x)", "grid": [0.9, 0.95, 0.975]}
    choices = [
        choice("baseline"),
        choice("baseline", **beta),
        choice("baseline", "150k", grid=[], losses=[], status="carried"),
    ]
    text = page(tmp_path / "r.html", sweep(), choices=choices).text
    assert "learning_rate" in text
    assert "beta2" in text
    assert "0.975: 3.9300" in text


def test_a_sweep_that_has_just_begun_has_a_page(tmp_path, sweep):
    table = sweep()
    later = table["rung"] != "25k"
    table.loc[later, ["status", "loss"]] = ["pending", np.nan]
    text = page(tmp_path / "r.html", table).text
    assert "no law to show: arm 'baseline': all points have one value of C" in text


def test_a_sweep_without_a_finished_trial_has_a_page(tmp_path, sweep):
    text = page(tmp_path / "r.html", sweep().assign(status="pending", loss=np.nan)).text
    assert "unified against baseline is incomplete, interim: 0 of 8 pairs" in text


def test_one_arm_alone_has_a_page_with_its_law_and_no_verdict(tmp_path, sweep):
    text = page(tmp_path / "r.html", sweep({"baseline": 0.0}), bootstrap=20).text
    assert "One arm: nothing is compared with it." in text
    assert "Fitted laws L = A C α (Kaplan" in text
    assert "no law to show" not in text


@pytest.mark.usefixtures("undrawn")
def test_a_caveat_of_one_arm_stands_with_its_verdict_and_one_of_all_arms_below_them(tmp_path, sweep, diverge):
    table = sweep({"baseline": 0.0, "none": 0.04, "unified": -0.03}).assign(device="simulated")
    table = diverge(table, "unified", "55k", 1)
    none, unified = compared(table, bootstrap=20).values()
    of_all = [caveat for caveat in unified.warnings if caveat in none.warnings]
    of_one = [caveat for caveat in unified.warnings if caveat not in none.warnings]
    verdicts, _, caveats = page(tmp_path / "r.html", table).text.partition(" Caveats ")
    assert of_one
    assert [caveat for caveat in of_one if caveat not in verdicts] == []
    assert of_all
    assert [caveat for caveat in of_all if caveat in verdicts or caveat not in caveats] == []


@pytest.mark.usefixtures("undrawn")
def test_a_sweep_file_keeps_its_lines(tmp_path, sweep):
    page(tmp_path / "r.html", sweep(), facts={"sweep file": "name: a  # a comment\nseeds: [0]", "host": "h"})
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert '<pre class="copy" tabindex="0">name: a  # a comment\nseeds: [0]</pre>' in text
    assert "<dd>h</dd>" in text


@pytest.mark.usefixtures("undrawn")
def test_the_top_of_a_page_says_what_was_changed_on_what_and_the_answer(tmp_path, sweep):
    rows = sweep().assign(
        wall_s=900.0, vector_branches="shared", vector_placement="single", vector_decay="all"
    )
    rows["vector_reparameterization"] = rows["arm"].map({"baseline": "none", "unified": "or"})
    told = page(tmp_path / "r.html", rows, facts={"text": "my books"}).text
    assert "unified against baseline: unified has reparameterization or." in told
    words = "16 runs of 25.1k to 151k parameters and 401k to 2.41M tokens of my books, 4 h of training in"
    assert words in told
    assert told.index("unified is better.") < told.index("95 % interval")


@pytest.mark.usefixtures("undrawn")
def test_the_page_shows_what_compare_with_its_options_computes(tmp_path, sweep):
    options = {"law": "power-floor", "where": "n_params > 3e4", "bootstrap": 20}
    comparison = compare(sweep(), reference="baseline", **options).only
    assert comparison.sentence in page(tmp_path / "r.html", sweep(), **options).text


@pytest.mark.usefixtures("undrawn")
def test_repeated_data_are_said(tmp_path, sweep):
    table = sweep()
    text = page(tmp_path / "r.html", table.assign(epochs=np.where(table["rung"] == "150k", 2.5, 0.5))).text
    assert "Data were repeated at 150k (up to 2.50 epochs)" in text


def test_curves_of_other_arms_are_left_out_and_need_their_columns(tmp_path, sweep):
    curves = pd.DataFrame({"trial_id": "a", "arm": "other", "rung": "25k", "seed": 0, "tokens": [1, 2]})
    curves["loss"] = [3.0, 2.0]
    assert "Training loss (" not in page(tmp_path / "r.html", sweep(), curves=curves).text
    with pytest.raises(DataError, match=r"no column 'tokens'.*nearest: 'token'"):
        page(tmp_path / "r.html", sweep(), curves=curves.rename(columns={"tokens": "token"}))


def sizes_and_budgets(names: tuple[str, str]) -> pd.DataFrame:
    """The first arm of ``names`` and a better second one, at four sizes and three budgets."""
    rows = [
        {"arm": arm, "n_params": n, "n_tokens": ratio * n, "seed": seed, "rung": f"{n:.0e}-{ratio}",
         "loss": 1.5 + factor * 40 * n**-0.3 + 60 * (ratio * n) ** -0.3 + 1e-3 * seed}
        for arm, factor in zip(names, (1.0, 0.9), strict=True)
        for n in (3e4, 1e5, 3e5, 1e6)
        for ratio in (5, 20, 80)
        for seed in (0, 1)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("where", [None, "rung >= 1e5"])
def test_a_law_that_arms_share_is_fitted_to_all_of_them_at_once_the_reference_first(tmp_path, where):
    table = sizes_and_budgets(("unified", "baseline")).assign(rung=lambda rows: rows["n_params"])
    text = page(tmp_path / "r.html", table, law="chinchilla-shared", where=where, bootstrap=20).text
    laws = text.partition("Fitted laws")[2]
    assert "no law to show" not in text
    assert laws.index("baseline") < laws.index("unified")


@pytest.mark.usefixtures("undrawn")
def test_the_page_shows_costs_where_there_are_any_and_no_section_that_is_empty(tmp_path, sweep):
    text = page(tmp_path / "r.html", sweep()).text
    assert " Cost " not in text
    assert "Comparison trials: 16 completed." in text
    timed = sweep().assign(wall_s=3600.0, planned_s=1800.0)
    text = page(tmp_path / "r.html", timed).text
    assert "Cost of with a result spent, h 25k 4 of 4 4" in text


@pytest.mark.parametrize(
    ("arms", "seeds", "most"),
    [pytest.param(5, 10, 3e6, marks=pytest.mark.slow), pytest.param(10, 50, 8e6, marks=pytest.mark.nightly)],
)
def test_a_page_of_very_many_trials_can_be_sent(tmp_path, sweep, arms, seeds, most):
    rungs = {f"rung-{number}": int(25e3 * 1.5**number) for number in range(10)}
    effects = {"baseline": 0.0} | {f"arm-{number}": -0.01 for number in range(1, arms)}
    table = sweep(effects, seeds=tuple(range(seeds)), rungs=rungs)
    table = table.assign(trial_id=[f"{number:064x}" for number in range(len(table))], learning_rate=0.01)
    write_report(table, tmp_path / "r.html", name="n", reference="baseline", **CHEAP)
    assert len(table) == 100 * arms * seeds // 10
    assert (tmp_path / "r.html").stat().st_size < most
