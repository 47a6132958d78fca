"""Pairs that are not independent: of one shape or trunk, or of seeds that are repeated; losses by block."""

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
        loss_blocks = list(map(json.dumps, blocks))
        return table.assign(loss_blocks=loss_blocks, block_tokens=list(map(json.dumps, tokens)))
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


def shapes(n_shapes: int) -> pd.DataFrame:
    """Five token budgets of each shape; differences vary from shape to shape, 0.012 on average."""
    rng = np.random.default_rng(2)
    shape = np.repeat(np.arange(n_shapes), 5)
    sizes = np.geomspace(1e7, 1e9, n_shapes)[shape]
    table = pd.DataFrame({"n_params": sizes, "n_tokens": sizes * np.tile([5.0, 10, 20, 40, 80], n_shapes)})
    loss = 30 * (6 * table["n_params"] * table["n_tokens"]) ** -0.07
    noise_of_shape = rng.normal(0, 0.03, n_shapes)
    effect = 0.012 + (noise_of_shape - noise_of_shape.mean())[shape] + rng.normal(0, 0.003, len(table))
    arms = {"baseline": loss, "unified": loss + effect}
    return pd.concat([table.assign(arm=arm, loss=values, shape=shape) for arm, values in arms.items()])


def test_trap_7_pairs_of_one_shape_are_not_independent_and_the_conclusion_flips():
    table = shapes(12)
    alone, together = only(table, cluster="row"), only(table, cluster="shape")
    assert alone.verdict == "worse"
    assert together.verdict == "undecided"
    assert together.loss_difference.df == 11
    assert "from the spread between clusters" in together.sentence
    assert all(row.interval is None for row in together.by_rung)


def test_pairs_in_clusters_of_one_size_get_the_t_interval_of_the_clusters_means():
    table = shapes(12)
    wide = table.pivot_table(index=["shape", "n_tokens"], columns="arm", values="loss")
    means = (wide["unified"] - wide["baseline"]).groupby("shape").mean()
    half = 2.200985 * means.std() / 12**0.5
    difference = only(table, cluster="shape").loss_difference
    assert difference.interval == pytest.approx((means.mean() - half, means.mean() + half), rel=1e-5)


def test_fewer_than_ten_clusters_carry_no_interval():
    comparison = only(shapes(6), cluster="shape")
    assert comparison.loss_difference.interval is None
    assert "too few independent clusters" in comparison.reason.text


def branches(table: pd.DataFrame) -> pd.DataFrame:
    """Three token budgets of each trial, which share a trunk: their noise is one and the same, but for a part
    of a hundred."""
    rng = np.random.default_rng(4)
    trunk = table["arm"] + table["rung"] + table["seed"].astype(str)
    parts = [
        table.assign(
            n_tokens=table["n_tokens"] * factor,
            loss=table["loss"] - 0.1 * factor + rng.normal(0, 1e-4, len(table)),
            cluster=trunk,
        )
        for factor in (1, 2, 4)
    ]
    return pd.concat(parts, ignore_index=True)


def test_branches_of_one_trunk_count_as_one_pair(sweep):
    """Three budgets know no more of the noise between seeds than one does."""
    table = sweep(noise=0.01)
    three = branches(table)
    difference, alone = only(three).loss_difference, only(table).loss_difference
    assert difference.df == pytest.approx(alone.df, rel=0.05)
    assert difference.interval == pytest.approx(alone.interval, rel=0.05)
    streams = three.assign(stream=three["rung"] + three["seed"].astype(str) + three["n_tokens"].astype(str))
    as_if_independent = only(streams, cluster="row").loss_difference
    assert as_if_independent.df > 2 * difference.df
    widths = [high - low for low, high in (difference.interval, as_if_independent.interval)]
    assert widths[0] > 1.5 * widths[1]
