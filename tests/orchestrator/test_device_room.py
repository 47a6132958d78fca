"""Whether a trial fits on its device, and what is said where it does not."""

from dataclasses import replace

import pytest

from scalevec.model.estimate import memory_of
from scalevec.model.strategies import PRESETS
from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.costs import Room, recompute_for, room_of, what_fits
from support import ON_A_GPU, TWO_BILLION


def room(gigabytes: float) -> Room:
    return Room(gigabytes * 1e9, "what it has", is_certain=True)


def test_a_card_that_is_not_named_is_taken_for_an_h100() -> None:
    on_named, on_any = (room_of(ResourceRequest(gpus=1), card) for card in ("a100-40gb", None))
    assert (on_named.size, on_named.is_certain) == (40e9, True)
    assert (on_any.size, on_any.is_certain) == (80e9, False)


def test_a_share_of_a_card_has_that_share_of_its_memory() -> None:
    assert room_of(ResourceRequest(gpus=0.25), "h100").size == 20e9


def test_without_gpus_the_room_is_what_is_asked_for() -> None:
    assert room_of(ResourceRequest(memory_gb=4), None).size == 4e9
    assert room_of(ResourceRequest(), None) is None


def test_blocks_are_recomputed_where_one_arm_would_not_fit_otherwise() -> None:
    baseline = replace(TWO_BILLION, model=replace(TWO_BILLION.model, scale_vectors=PRESETS["baseline"]))
    sizes = sorted(memory_of(trial, ON_A_GPU).total / 1e9 for trial in (baseline, TWO_BILLION))
    between = room(sum(sizes) / 2)
    assert recompute_for([baseline], ON_A_GPU, between) == "none"
    assert recompute_for([baseline, TWO_BILLION], ON_A_GPU, between) == "block"
    assert recompute_for([TWO_BILLION], ON_A_GPU, None) == "none"


@pytest.mark.parametrize(
    ("gigabytes", "advice"),
    [
        (90, "micro_batch: 4 with recompute: none fits"),
        (48, "micro_batch: 4 with recompute: block fits"),
        (24, "a larger card has room, or several with shard: true"),
    ],
)
def test_what_does_not_fit_is_told_what_would(gigabytes: float, advice: str) -> None:
    words = what_fits(TWO_BILLION, ON_A_GPU, room(gigabytes))
    needed = memory_of(TWO_BILLION, ON_A_GPU).total / 1e9
    assert words.startswith(f"needs {needed:,.3g} GB, more than what it has")
    assert advice in words
