"""Pairs that are not independent, of one shape or one trunk, count as one."""

import numpy as np
import pandas as pd
import pytest

from comparisons import only


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
