"""A device that is too small for its trial refuses it before the training, with what would fit."""

from types import SimpleNamespace

import pytest
import torch

from scalevec.model.config import RunOptions
from scalevec.model.estimate import memory_of
from scalevec.orchestrator.worker.trainers import own_loop
from scalevec.orchestrator.worker.trainers.own_loop import NoRoomError, require_room
from support import ON_A_GPU, TWO_BILLION


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch):
    """Gives the GPUs of this process so much of what the trial needs, each the part of its number."""

    def given(*parts: float) -> None:
        needed = memory_of(TWO_BILLION, ON_A_GPU).total
        cards = [SimpleNamespace(name="L4", total_memory=int(part * needed)) for part in parts]
        monkeypatch.setattr(torch.cuda, "get_device_properties", cards.__getitem__)

    return given


def test_a_card_that_is_too_small_is_refused_with_what_fits(card) -> None:
    card(0.6)
    with pytest.raises(NoRoomError, match="of the L4 that it was given; micro_batch: 4 with recompute"):
        require_room(TWO_BILLION, ON_A_GPU)
    card(0.25)
    with pytest.raises(NoRoomError, match="or several with shard: true"):
        require_room(TWO_BILLION, ON_A_GPU)


@pytest.mark.parametrize("part", [1.2, 1.0, 0.95])
def test_a_card_that_the_estimate_cannot_tell_from_a_large_one_is_tried(part: float, card) -> None:
    card(part)
    require_room(TWO_BILLION, ON_A_GPU)


def test_each_process_looks_at_its_own_card(card) -> None:
    card(1.2, 0.5)
    require_room(TWO_BILLION, ON_A_GPU, local_rank=0, processes=2)
    with pytest.raises(NoRoomError):
        require_room(TWO_BILLION, ON_A_GPU, local_rank=1, processes=2)


def test_on_a_cpu_the_processes_share_what_the_machine_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    options = RunOptions(processes=2, micro_batch=1)
    needed = memory_of(TWO_BILLION, options).total
    monkeypatch.setattr(own_loop, "_of_system", lambda: 10 * needed)
    monkeypatch.setattr(own_loop, "memory_limit", lambda: 3 * needed)
    require_room(TWO_BILLION, options, processes=2)
    monkeypatch.setattr(own_loop, "memory_limit", lambda: int(1.5 * needed))
    with pytest.raises(NoRoomError, match="GB of memory that it may use here, shared by 2 processes"):
        require_room(TWO_BILLION, options, processes=2)
