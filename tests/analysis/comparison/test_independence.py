"""Tables whose settings or rungs repeat seeds, with streams and without, and losses by block."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.comparisons import only

from scalevec.analysis import DataError, compare


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


def test_settings_that_repeat_seeds_count_as_one_and_their_share_is_tested(sweep):
    comparison = only(settings_of(sweep))
    assert comparison.loss_difference.df <= 8  # four rungs of three seeds, whatever the settings
    assert "from whole clusters" in comparison.sentence
    assert any("settings repeat seeds" in text and "F(8, 16)" in text for text in comparison.warnings)


def test_recorded_streams_make_settings_and_rungs_independent(sweep):
    comparison = only(streamed(settings_of(sweep)))
    assert comparison.loss_difference.df > 8
    assert "assumed independent" not in comparison.sentence
    assert not any("repeat seeds" in text for text in comparison.warnings)


def test_rungs_that_repeat_seeds_are_assumed_independent_and_the_sentence_says_so(sweep):
    comparison = only(sweep(seeds=(0, 1, 2)))
    assert "rungs repeat seeds and are assumed independent" in comparison.sentence
    assert any("rungs repeat seeds" in text and "F(2, 6)" in text for text in comparison.warnings)


def test_whole_seeds_are_the_clusters_where_rungs_are_found_to_share_them(sweep):
    table = sweep(seeds=(0, 1, 2))
    arm = table["arm"] == "unified"
    table.loc[arm, "loss"] += 0.01 * table.loc[arm, "seed"]
    comparison = only(table)
    assert comparison.loss_difference.df == pytest.approx(2)
    assert "from whole seeds, which the rungs share" in comparison.sentence
    assert any("2 degrees of freedom from whole clusters" in text for text in comparison.warnings)


def unlike_between_seeds(sweep) -> pd.DataFrame:
    """Differences near -0.013, of which seed 1 has 0.01 more at three of four rungs and 0.01 less at one."""
    table = sweep({"baseline": 0.0, "unified": -0.02}, noise=0.0)
    sign = np.where(table["rung"] == "25k", -1, 1) * (2 * table["seed"] - 1)
    table["loss"] += 0.005 * sign * (table["arm"] == "unified")
    return table


def test_a_claim_that_whole_seeds_do_not_carry_is_withheld_and_says_what_would_settle_it(sweep):
    comparison = only(unlike_between_seeds(sweep))
    assert comparison.loss_difference.interval[1] < 0
    assert comparison.verdict == "undecided"
    assert (
        "The interval alone says better, but rungs repeat seeds and no stream is recorded"
        in comparison.sentence
    )
    assert "over whole seeds it does not hold" in comparison.sentence
    assert "repeated_seeds: independent" in comparison.would_change
    assert comparison.over_seeds.df == pytest.approx(1)


def test_a_user_may_state_that_rungs_are_independent_and_the_sentence_says_so(sweep):
    comparison = only(unlike_between_seeds(sweep), repeated_seeds="independent")
    assert (comparison.verdict, comparison.over_seeds) == ("better", None)
    assert "rungs repeat seeds and are stated to be independent" in comparison.sentence
    assert comparison.repeated_seeds == "independent"


def test_a_claim_on_recorded_streams_needs_no_whole_seeds(sweep):
    comparison = only(streamed(unlike_between_seeds(sweep)))
    assert (comparison.verdict, comparison.over_seeds) == ("better", None)


def test_an_equivalence_must_hold_over_whole_seeds_too(sweep):
    table = unlike_between_seeds(sweep)
    table.loc[table["arm"] == "unified", "loss"] += 0.02
    assert only(table, margin=0.012, repeated_seeds="independent").verdict == "equivalent"
    assert only(table, margin=0.012).verdict == "undecided"


def test_seeds_that_no_rungs_have_in_common_need_no_check(sweep):
    table = unlike_between_seeds(sweep)
    table["seed"] += 2 * table["n_params"].rank(method="dense").astype(int)
    assert (only(table).verdict, only(table).over_seeds) == ("better", None)


def test_rungs_that_share_too_few_seeds_for_an_interval_over_them_carry_no_claim(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.3})
    table = table[(table["rung"] != "150k") | (table["seed"] == 0)]
    comparison = only(table)
    assert comparison.verdict == "undecided"
    assert "whole seeds carry no interval" in comparison.sentence


def test_every_arm_counts_in_the_correction_over_whole_seeds(sweep):
    effects = {"baseline": 0.0, "unified": -0.03, "other": 0.0}
    unified, other = compare(sweep(effects, seeds=(0, 1, 2)), reference="baseline", bootstrap=0)
    assert unified.over_seeds.p_holm >= unified.loss_difference.p_holm
    assert other.over_seeds.p_holm >= unified.over_seeds.p_holm


@pytest.mark.parametrize("as_text", [True, False])
def test_blocks_of_the_test_split_are_in_the_interval_and_said(sweep, as_text: bool):
    table = sweep(seeds=(0, 1, 2))
    without, known = only(table), only(with_blocks(table, as_text=as_text))
    assert "the test split's own error is left out" in without.sentence
    assert "left out" not in known.sentence
    difference = known.loss_difference
    assert difference.split_error == pytest.approx(0.02 * 2**0.5 / 32**0.5, rel=0.3)
    assert any("from the test split (32 blocks)" in text for text in known.warnings)
    widths = [np.ptp(comparison.loss_difference.interval) for comparison in (known, without)]
    assert widths[0] > widths[1]
    middle = known.compute_multipliers[0]
    assert min(middle.split_error, middle.seeds_error) > 0


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
    assert "A larger test split" in only(table).would_change


def test_a_comparison_twice_gives_the_same_bytes(sweep):
    table = with_blocks(settings_of(sweep))
    assert json.dumps(only(table).to_dict()) == json.dumps(only(table).to_dict())
