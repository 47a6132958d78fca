"""The page of findings: what its words follow from, and that kept results alone give all of it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import findings
import pandas as pd
import pytest
import small_results
import yaml

from kept_text import difference_beyond_rounding
from support import CHECKOUT

KEPT = CHECKOUT / "benchmarks" / "reference" / "small"
SWEEPS = sorted(path.parent.name for path in KEPT.glob("*/results.csv"))
PAGE = (CHECKOUT / "docs" / "findings.md").read_text()
CLAIMS = [
    claim
    for claim in yaml.safe_load((CHECKOUT / "tools" / "claims.yaml").read_text())
    if claim.get("reads", "difference") in ("difference", "time", "memory")
]
SETTINGS = ("tokens_per_parameter", "optimizer", "schedule", "embedding_scale", "norm_gain", "weight_decay")
DIGITS = {"difference": 3, "time": 2, "memory": 2}
"""After the point, as the page writes them."""
EVERY_TIME = ("removal-tuned", "overhead")
"""Sweeps of which all is remade in every test run."""


def claim(**fields: Any) -> Any:
    return findings.Claim("a claim", "a size: an effect", fields.pop("sweep", "none"), **fields)


@pytest.mark.parametrize(
    ("verdict", "interval", "effect", "word"),
    [
        ("better", (-0.05, -0.03), -0.04, "shows"),
        ("worse", (0.03, 0.05), -0.04, "shows the opposite"),
        ("equivalent", (-0.004, 0.004), None, "does not"),
        ("undecided", (-0.01, 0.01), -0.04, "does not"),
        ("undecided", (-0.05, 0.01), -0.04, "cannot be seen"),
        ("undecided", (-0.01, 0.01), None, "cannot be seen"),
        ("undecided", None, -0.04, "cannot be seen"),
        ("incomplete", None, -0.04, "not finished"),
    ],
)
def test_a_lower_loss_is_shown_by_the_verdict_alone(verdict, interval, effect, word):
    assert findings.shown(verdict, claim(effect=effect), interval) == word


def test_a_higher_loss_is_shown_by_worse():
    expected = claim(expects="higher", effect=0.015)
    assert findings.shown("worse", expected, (0.01, 0.05)) == "shows"
    assert findings.shown("undecided", expected, (-0.02, 0.01)) == "does not"


@pytest.mark.parametrize(
    ("outcomes", "word"),
    [
        (["came true", "came true"], "shows"),
        (["came true", "cannot be told"], "shows at 1 of 2 sizes"),
        (["came out opposite", "cannot be told"], "shows the opposite at 1 of 2 sizes"),
        (["came out opposite", "came out opposite"], "shows the opposite"),
        (["came true", "came out opposite"], "shows at 1 of 2 sizes, shows the opposite at 1 of 2 sizes"),
        (["came out otherwise", "came out otherwise"], "does not"),
        (["cannot be told", "cannot be told"], "cannot be seen"),
    ],
)
def test_predictions_show_a_claim_where_they_came_true(outcomes, word):
    assert findings.came(outcomes) == word


@pytest.mark.parametrize(
    ("verdict", "interval", "word"),
    [
        ("better", (1.1, 1.3), "shows"),
        ("undecided", (1.1, 1.3), "cannot be seen"),
        ("worse", (0.7, 0.9), "shows the opposite"),
        ("undecided", (0.7, 0.9), "does not"),
        ("undecided", (0.9, 1.1), "does not"),
        ("undecided", (0.9, 1.3), "cannot be seen"),
        ("incomplete", None, "not finished"),
    ],
)
def test_a_saving_is_shown_or_contradicted_only_with_the_verdict(verdict, interval, word):
    assert findings.saved(verdict, claim(effect=1.22), interval) == word


@pytest.mark.parametrize(
    ("verdict", "scaling", "word"),
    [
        ("better", "constant", "shows"),
        ("better", "grows", "shows"),
        ("undecided", "constant", "cannot be seen"),
        ("better", "shrinks", "shows the opposite"),
        ("better", "not_resolved", "cannot be seen"),
        ("incomplete", "constant", "not finished"),
    ],
)
def test_only_a_saving_can_stay_or_grow(verdict, scaling, word):
    assert findings.grown(verdict, scaling) == word


@pytest.fixture
def of_version(monkeypatch, tmp_path) -> Iterator[Any]:
    """Keeps the quickstart's results as those of the sweep ``removal``, under another identity version."""

    def keep(version: int) -> None:
        rows = pd.read_csv(CHECKOUT / "benchmarks" / "reference" / "quickstart" / "results.csv")
        (tmp_path / "removal").mkdir()
        rows.assign(identity_version=version).to_csv(tmp_path / "removal" / "results.csv", index=False)

    monkeypatch.setattr(findings.paper, "KEPT", tmp_path)
    caches = (findings.kept_rows, findings.compared)
    for cache in caches:
        cache.cache_clear()
    yield keep
    for cache in caches:
        cache.cache_clear()


def test_a_sweep_without_kept_results_has_not_been_run(of_version):
    assert findings.reading(claim(sweep="removal")).shown == "not run yet"


def test_only_results_of_the_present_identity_version_are_evidence(of_version):
    of_version(findings.VERSION - 1)
    asked = claim(sweep="removal", arm="none", expects="higher")
    assert findings.reading(asked).shown == "not run yet"
    assert list(findings.sentences("removal")) == []


def test_results_of_the_present_version_are_read_against_the_reference_of_the_claim(of_version):
    of_version(findings.VERSION)
    assert findings.reading(claim(sweep="removal", arm="none", expects="higher")).shown == "shows"
    reversed_ = claim(sweep="removal", arm="baseline", reference="none")
    assert findings.reading(reversed_).seen.startswith("−0.0")


def test_a_claim_is_about_an_arm_of_its_sweep():
    for each in findings.claims():
        arms = findings.sweeps.load(findings.paper.SMALL / f"{each.sweep}.yaml").arms
        assert {each.arm, each.reference or each.arm} <= set(arms), each.claim


@pytest.mark.slow
@pytest.mark.kept
def test_the_page_is_that_of_the_kept_results():
    text = small_results.PAGE.read_text(encoding="utf-8")
    assert difference_beyond_rounding(text, small_results.with_blocks(text)) == ""


@pytest.mark.slow
@pytest.mark.kept
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in EVERY_TIME else pytest.mark.nightly) for name in SWEEPS]
)
def test_tables_and_figures_are_those_of_the_kept_results(tmp_path, name):
    small_results.write_kept(name, tmp_path)
    remade = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")]
    assert remade
    differing = {str(path): difference(KEPT / name / path, tmp_path / path) for path in remade}
    assert {path: text for path, text in differing.items() if text} == {}


def test_kept_tables_have_five_significant_digits_and_whole_counts():
    row = "tiny-25k,401408,25088.0,3.8601060189312246,-0.00025747192441567465,1.2345678e-05,16"
    assert findings.paper.with_five_digits(row) == "tiny-25k,401408,25088.0,3.8601,-0.00025747,1.2346e-05,16"


def difference(kept: Path, remade: Path) -> str:
    return difference_beyond_rounding(kept.read_text("utf-8"), remade.read_text("utf-8"))


def numbers_of(claim: dict[str, Any]) -> list[float]:
    """What the kept rows say of a difference, a time or a memory, by pandas alone."""
    rows = pd.read_csv(KEPT / claim["sweep"] / "results.csv", low_memory=False)
    sweep = yaml.safe_load((CHECKOUT / "sweeps" / "small" / f"{claim['sweep']}.yaml").read_text())
    rows = rows[(rows["stage"] == "comparison") & (rows["status"] == "completed")]
    # Where a reference is only a bound, nothing is claimed for an arm.
    rows = rows[(rows["lr_status"] != "censored") | (rows["arm"] == claim.get("arm", "unified"))]
    rows = rows.query(claim["where"]) if "where" in claim else rows
    column = {"time": "wall_s", "memory": "allocated_bytes"}.get(claim.get("reads", ""), "loss")
    varied = [name for name in SETTINGS if name in rows]
    arms = rows.pivot_table(index=["rung", *varied, "seed"], columns="arm", values=column)
    arm, reference = (
        arms[claim.get("arm", "unified")],
        arms[claim.get("reference", sweep["compare"]["reference"])],
    )
    if column == "loss":
        cells = (arm - reference).dropna().groupby(level=["rung", *varied]).mean()
        return [cells.mean()]
    ratios = arm / reference
    return [ratios.median(), ratios.min(), ratios.max()]


@pytest.mark.kept
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim['sweep']}-{claim['claim'][:40]}")
def test_numbers_of_the_page_follow_from_the_kept_rows_by_pandas_alone(claim):
    begin, sweep = f"| {claim['claim']} | ", f" | `{claim['sweep']}`, "
    [row] = [line.split(" | ") for line in PAGE.splitlines() if line.startswith(begin) and sweep in line]
    seen = [float(number.replace("−", "-")) for number in re.findall(r"[+−]?\d+\.\d+", row[3])]
    if not seen:
        assert "**not run yet**" in row[6] or row[3].startswith("withheld: ")
        return
    expected = numbers_of(claim)
    for shown, number in zip(seen, expected, strict=False):
        assert shown == pytest.approx(number, abs=0.51 * 10.0 ** -DIGITS[claim.get("reads", "difference")])


@pytest.mark.kept
def test_the_answer_at_the_top_of_the_page_has_the_numbers_of_its_claims():
    gains: dict[tuple[str, str], list[float]] = {}
    for claim in CLAIMS:
        if claim["sweep"] in ("main", "mixture", "attribution", "optimizers", "trend"):
            of_arm = gains.setdefault((claim["sweep"], claim.get("arm", "unified")), [])
            of_arm.append(-numbers_of(claim)[0])
    answer = " ".join(PAGE.partition("**Should you use it?**")[2].partition("<!-- claims")[0].split())
    dense, mixtures = ([min(of), max(of)] for of in (gains["main", "unified"], gains["mixture", "unified"]))
    tuned, untuned = (
        rows_of(sweep, "comparison").query("arm == @arm").set_index(["rung", "seed"])["loss"]
        for sweep, arm in (("attribution", "unified"), ("steps", "baseline"))
    )
    losses = (
        rows_of("trend", "comparison").query("rung == 'tiny-310k'").pivot(index="seed", columns="arm")["loss"]
    )
    again = pd.read_csv(KEPT / "trend" / "same-rate.csv").set_index("seed")["loss"]
    for words in (
        "by {:.3f} to {:.3f} nats/token in dense models".format(*dense),
        "{:.3f} to {:.3f} in mixtures".format(*mixtures),
        "it is {:.3f} lower".format((untuned - tuned).dropna().groupby("rung").mean().mean()),
        "gains as much ({:.3f})".format(*gains["main", "unified-attention"]),
        "the mean is {:.3f};".format(*gains["optimizers", "unified"]),
        "From 25k to 150k it is {:.3f} (".format(gains["trend", "unified"][1]),
        "is {:.3f} lower than at its own".format((losses["baseline"] - again).mean()),
        "lower than that by {:.3f} (".format((again - losses["unified"]).mean()),
    ):
        assert words in answer


def rows_of(sweep: str, stage: str) -> pd.DataFrame:
    return pd.read_csv(KEPT / sweep / "results.csv", low_memory=False).query("stage == @stage")
