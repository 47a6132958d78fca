"""The verdicts at a glance: one line per arm, what would change them, at most 14 lines."""

import dataclasses
import re

import pandas as pd
import pytest

from scalevec import analysis
from scalevec.analysis.report.verdict_table import MOST_LINES, verdict_table


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
    [comparison] = analysis.compare(pd.DataFrame(rows), reference="baseline", bootstrap=50)
    return comparison


def test_an_arm_has_a_line_with_difference_interval_p_and_verdict(comparison):
    head, header, line, *_ = verdict_table([comparison]).splitlines()
    assert head == "loss: arm minus baseline, nats/token; p by Holm over the arms"
    columns = ["arm", "difference", "95 % interval", "p", "at these sizes", "with scale"]
    assert re.split(r"\s{2,}", header) == columns
    assert line.split()[0] == "new"
    assert line.split()[1] == "−0.0500"
    assert re.split(r"\s{2,}", line)[-2:] == [comparison.verdict, comparison.scaling]


def test_it_says_what_would_change_a_verdict_and_where_the_rest_is(comparison):
    text = verdict_table([comparison])
    assert comparison.would_change.split()[0] in text
    assert "--verbose" in text.splitlines()[-1]


@pytest.mark.parametrize("name", ["arm", "an-arm-with-a-name-of-more-than-30-characters"])
@pytest.mark.parametrize("n_arms", [1, 3, 8, 18])
def test_it_has_at_most_14_lines_which_tell_the_whole_name_of_each_arm_shown(comparison, n_arms, name):
    arms = [dataclasses.replace(comparison, arm=f"{name}-{number}") for number in range(n_arms)]
    lines = verdict_table(arms).splitlines()
    assert len(lines) <= MOST_LINES
    shown = [line for line in lines if comparison.verdict in line]
    assert len(shown) == (min(n_arms, 11) if name == "arm" else min(n_arms, 5))
    assert all(any(f"{name}-{number}" in line for line in lines) for number in range(len(shown)))


def test_an_estimate_that_came_after_the_verdict_stands_beside_it(comparison):
    after = {"mean": -0.0412, "standard_error": 0.0021, "pairs": 9}
    text = verdict_table([dataclasses.replace(comparison, plan={**comparison.plan, "exploratory": after})])
    assert "new: Exploratory, after the plan: over all 9 pairs the difference is −0.0412" in text


def test_an_arm_without_pairs_has_no_numbers(comparison):
    nothing = dataclasses.replace(
        comparison.loss_difference, mean=None, interval=None, p_value=None, p_holm=None
    )
    line = verdict_table([dataclasses.replace(comparison, loss_difference=nothing)]).splitlines()[2]
    assert line.split()[1:4] == ["-", "-", "-"]
