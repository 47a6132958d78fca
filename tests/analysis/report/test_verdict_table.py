"""The answer at a glance: four lines for each arm and one table."""

import dataclasses
import re

import pandas as pd
import pytest

from scalevec import analysis
from scalevec.analysis.report.verdict_table import verdict_table


@pytest.fixture(scope="module")
def comparison() -> analysis.Comparison:
    rows = [
        {
            "arm": arm,
            "rung": str(n),
            "seed": seed,
            "n_params": n,
            "n_tokens": 16 * n,
            "loss": loss + seed / 500,
        }
        for n, loss in ((20_000, 4.0), (40_000, 3.8), (80_000, 3.6))
        for seed in (0, 1)
        for arm, loss in (("baseline", loss), ("new", loss - 0.05))
    ]
    return analysis.compare(pd.DataFrame(rows), reference="baseline", bootstrap=50).only


def test_an_arm_has_four_lines_before_the_table(comparison):
    lines = verdict_table([comparison]).splitlines()
    assert lines[0] == "new"
    text = " ".join(" ".join(lines).split())
    for label, line in comparison.lines.items():
        assert f"{label}: {' '.join(line.text.split())}" in text


def test_the_table_has_difference_interval_p_verdict_and_scope(comparison):
    lines = verdict_table([comparison]).splitlines()
    head, header, line = lines[lines.index("") + 1 :][:3]
    assert head == "loss: arm minus baseline, nats/token; p by Holm over the arms"
    columns = ["arm", "difference", "95 % interval", "p", "verdict", "scope"]
    assert re.split(r"\s{2,}", header) == columns
    assert line.split()[:2] == ["new", "−0.0500"]
    assert re.split(r"\s{2,}", line)[-2:] == [comparison.verdict, comparison.scope.text]


def test_a_long_name_stands_whole_below_the_table(comparison):
    name = "an-arm-with-a-name-of-more-than-30-characters"
    assert name in verdict_table([dataclasses.replace(comparison, arm=name)]).splitlines()[-2]


def test_an_arm_without_pairs_has_no_numbers(comparison):
    nothing = dataclasses.replace(
        comparison.loss_difference, mean=None, interval=None, p_value=None, p_holm=None
    )
    line = verdict_table([dataclasses.replace(comparison, loss_difference=nothing)]).splitlines()[-2]
    assert line.split()[1:4] == ["-", "-", "-"]
