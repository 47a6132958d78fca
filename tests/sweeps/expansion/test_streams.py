"""Streams: the arms of a cell share their random numbers, two rungs or settings never do."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scalevec.model.identity import stream_of, trial_id
from scalevec.sweeps.expansion.expand import Cell

Cells = Callable[..., list[Cell]]
TWO_ARMS = {"baseline": {}, "unified": {"scale_vectors": "unified"}}


def streams(cells: list[Cell], seed: int = 0) -> list[str]:
    return [cell.trial(seed).stream for cell in cells]


def test_the_arms_of_a_cell_share_their_stream(cells_of: Cells) -> None:
    optimizers = {name: {"optimizer": name} for name in ("sgd", "muon")}
    cells = cells_of(arms=TWO_ARMS | optimizers | {"narrow": {"precision": "bfloat16", "weight_decay": 0.0}})
    assert len(set(streams(cells))) == 1
    assert len({trial_id(cell.template) for cell in cells}) == len(cells)


@pytest.mark.parametrize(
    "sections",
    [
        {"ladder": ["tiny-25k", "tiny-55k"]},
        {"optimizers": ["adamw", "muon"]},
        {"schedules": ["wsd", "inverse-sqrt"]},
        {"grid": {"weight_decay": [0.0, 0.1]}},
        {"grid": {"evaluation_tokens": [1000, 0]}},
        {"zip": {"beta1": [0.8, 0.9], "beta2": [0.9, 0.99]}},
    ],
    ids=str,
)
def test_two_rungs_or_settings_share_no_stream(sections: dict[str, Any], cells_of: Cells) -> None:
    cells = cells_of(arms=TWO_ARMS, **sections)
    assert len(cells) == 4
    assert len(set(streams(cells))) == 2


@pytest.mark.parametrize(
    "sections",
    [
        {"tokens_per_parameter": [10, 20]},
        {"grid": {"learning_rate": [0.01, 0.02]}},
        {"tokens_per_parameter": [10, 20], "trial": {"warmup_tokens": 2048}},
        {"schedules": [{"name": "wsd", "warmup_tokens": 2048}, {"name": "constant", "warmup_tokens": 2048}]},
        {"schedules": ["wsd", {"name": "wsd", "cooldown_fraction": 0.4, "cooldown": "1-sqrt"}]},
    ],
    ids=str,
)
def test_cells_that_differ_in_budget_or_rate_or_cooldown_share_theirs(sections, cells_of):
    assert len(set(streams(cells_of(**sections)))) == 1


def test_seeds_share_no_stream(cells_of: Cells) -> None:
    (cell,) = cells_of()
    assert cell.template.stream == cell.trial(0).stream
    assert len({cell.trial(seed).stream for seed in range(100)}) == 100


def test_what_is_written_out_counts_as_what_is_left_out(cells_of: Cells) -> None:
    written: dict[str, Any] = {
        "optimizer": "adamw",
        "beta2": 0.95,
        "schedule": "cosine",
        "warmup_fraction": 0.08,
        "batch_tokens": 2048,
        "precision": "float32",
        "evaluation_tokens": 4_000_000,
        "architecture": "llama",
        "scale_vectors": {"preset": "baseline", "branches": "heterogeneous"},
    }
    expected = streams(cells_of(trial={"scale_vectors": {"branches": "heterogeneous"}}))
    assert streams(cells_of(trial=written)) == expected


def test_tuned_fields_count_at_their_untuned_value(cells_of: Cells) -> None:
    untuned = streams(cells_of(trial={"weight_decay": 0.2}))
    tune = {"learning_rate": [0.01, 0.02], "weight_decay": [0.1, 0.3], "batch_tokens": [1024, 2048]}
    (cell,) = cells_of(trial={"weight_decay": 0.2}, tune=tune)
    assert [cell.trial(0, learning_rate=0.01, weight_decay=0.3, batch_tokens=1024).stream] == untuned
    assert streams([cell]) == untuned


def test_options_that_only_an_arm_makes_whole_have_a_stream(cells_of: Cells) -> None:
    arms = {"sgd": {"optimizer": "sgd"}, "muon": {"optimizer": "muon"}}
    slow, fast = (cells_of(trial={"momentum": value}, arms=arms) for value in (0.9, 0.95))
    assert len({*streams(slow)}) == len({*streams(fast)}) == 1
    assert streams(slow) != streams(fast)


def test_a_trial_by_itself_has_the_stream_of_a_sweep_whose_arm_changes_nothing(cells_of: Cells) -> None:
    for section in ({"warmup_tokens": 2048}, {"warmup_tokens": 2048, "schedule": "wsd", "optimizer": "muon"}):
        baseline, unified = (cell.template for cell in cells_of(trial=section, arms=TWO_ARMS))
        assert stream_of(replace(baseline, stream="")) == baseline.stream
        assert stream_of(replace(unified, stream="")) != unified.stream


def test_an_arm_that_is_a_setting_elsewhere_is_another_trial(cells_of: Cells) -> None:
    _, of_arm = (cell.template for cell in cells_of(arms=TWO_ARMS))
    (cell,) = cells_of(trial={"scale_vectors": "unified"}, arms={"all": {}})
    assert replace(of_arm, stream="") == replace(cell.template, stream="")
    assert trial_id(of_arm) != trial_id(cell.template)
