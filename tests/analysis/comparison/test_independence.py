"""Tables whose settings or rungs repeat seeds, with streams and without, and losses by block."""

import json

import numpy as np
import pandas as pd
import pytest

from comparisons import only
from scalevec.analysis import DataError


def settings_of(sweep) -> pd.DataFrame:
    parts = [
        sweep(random_seed=number, seeds=(0, 1, 2)).assign(optimizer=name)
        for number, name in enumerate(("adamw", "muon", "soap"))
    ]
    return pd.concat(parts, ignore_index=True)


def streamed(table: pd.DataFrame) -> pd.DataFrame:
    columns = [name for name in ("rung", "optimizer", "seed") if name in table]
    return table.assign(stream=table[columns].astype(str).agg(" ".join, axis=1))


def with_blocks(table: pd.DataFrame, n_blocks: int = 32, as_text: bool = True) -> pd.DataFrame:
    """Blocks whose mean is the loss; the arm's differ from the reference's by more in some than in others."""
    rng = np.random.default_rng(7)
    texts = {arm: rng.normal(0, 0.02, n_blocks) for arm in table["arm"].unique()}
    blocks = [
        (loss + texts[arm] - texts[arm].mean()).tolist()
        for arm, loss in zip(table["arm"], table["loss"], strict=True)
    ]
    tokens = [[1000] * n_blocks] * len(table)
    if as_text:
        return table.assign(
            loss_blocks=list(map(json.dumps, blocks)), block_tokens=list(map(json.dumps, tokens))
        )
    return table.assign(loss_blocks=blocks, block_tokens=tokens)


def test_settings_that_repeat_seeds_count_as_one(sweep):
    streams_of_rungs = settings_of(sweep).assign(seed=lambda t: t["rung"] + t["seed"].astype(str))
    comparison = only(streams_of_rungs)
    assert comparison.loss_difference.df <= 8  # four rungs of three seeds, whatever the settings
    assert "from whole clusters" in comparison.sentence


def test_recorded_streams_make_settings_and_rungs_independent(sweep):
    comparison = only(streamed(settings_of(sweep)))
    assert comparison.loss_difference.df > 8
    assert "repeat seeds" not in comparison.sentence


def with_an_effect_of_seeds(sweep) -> pd.DataFrame:
    table = sweep(seeds=(0, 1, 2))
    return table.assign(loss=table["loss"] + 0.01 * table["seed"] * (table["arm"] == "unified"))


def test_seeds_that_rungs_repeat_without_streams_are_what_varies(sweep):
    comparison = only(with_an_effect_of_seeds(sweep))
    assert comparison.loss_difference.df == pytest.approx(2)
    assert "2 degrees of freedom from whole seeds" in comparison.sentence
    assert "rungs repeat seeds, taken to share what a seed does" in comparison.sentence


def test_a_user_may_state_that_rungs_are_independent_and_the_sentence_says_so(sweep):
    comparison = only(with_an_effect_of_seeds(sweep), repeated_seeds="independent")
    assert comparison.loss_difference.df > 2
    assert "rungs repeat seeds, stated to be independent" in comparison.sentence


@pytest.mark.parametrize("as_text", [True, False])
def test_blocks_of_the_test_split_are_in_the_interval_and_said(sweep, as_text: bool):
    table = sweep(seeds=(0, 1, 2))
    tables = (table, with_blocks(table, as_text=as_text))
    without, known = (only(rows, bootstrap=100) for rows in tables)
    assert "the test split's own error is left out" in without.sentence
    assert "left out" not in known.sentence
    difference = known.loss_difference
    assert difference.split_error == pytest.approx(0.02 * 2**0.5 / 32**0.5, rel=0.5)
    widths = [np.ptp(comparison.loss_difference.interval) for comparison in (known, without)]
    assert widths[0] > widths[1]
    widths = [np.ptp(comparison.compute_multipliers[0].interval) for comparison in (known, without)]
    assert widths[0] > widths[1]


def test_fewer_than_sixteen_blocks_are_left_out_and_said(sweep):
    comparison = only(with_blocks(sweep(), n_blocks=15))
    assert comparison.loss_difference.split_error is None
    assert "the test split's own error is left out" in comparison.sentence


def test_blocks_of_another_loss_are_not_those_of_the_loss_that_is_compared(sweep):
    table = with_blocks(sweep()).assign(loss_other=lambda rows: rows["loss"] + 0.1)
    assert only(table, y="loss_other").loss_difference.split_error is None


def test_blocks_that_are_no_numbers_are_refused(sweep):
    with pytest.raises(DataError, match="column 'loss_blocks': '\\[1, x\\]' is no list of numbers"):
        only(with_blocks(sweep()).assign(loss_blocks="[1, x]"))


def test_more_seeds_are_not_asked_for_where_the_test_split_limits(sweep):
    table = with_blocks(sweep({"baseline": 0.0, "unified": -0.001}, noise=0.001))
    assert only(table).reason.code == "test_split"
