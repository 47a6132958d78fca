"""The feed gives the batches of the run, made ahead or not, from whichever step it is asked."""

import numpy as np
import pytest
import torch

from scalevec.model.data.corpus import TrainingBatches
from scalevec.model.train.step import BatchFeed

STEPS = 6
PART = slice(1, 3)


@pytest.fixture
def batches() -> TrainingBatches:
    return TrainingBatches(np.arange(400, dtype=np.uint16), 8, 4, "ab" * 32)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("steps", [range(STEPS), range(3, STEPS), [4, 1, 2]], ids=["all", "resumed", "back"])
def test_a_feed_gives_the_batch_of_each_step(batches, ahead, steps):
    with BatchFeed(batches, PART, STEPS, torch.device("cpu"), ahead=ahead) as feed:
        given = [feed.batch(step) for step in steps]
    for (inputs, targets), step in zip(given, steps, strict=True):
        expected = batches.batch(step, PART)
        assert torch.equal(inputs, expected[0])
        assert torch.equal(targets, expected[1])


def test_no_batch_is_made_beyond_the_last_step(batches, monkeypatch):
    asked = []
    original = TrainingBatches.batch
    monkeypatch.setattr(
        TrainingBatches, "batch", lambda self, step, part: asked.append(step) or original(self, step, part)
    )
    with BatchFeed(batches, PART, STEPS, torch.device("cpu"), ahead=True) as feed:
        for step in range(4, STEPS):
            feed.batch(step)
    assert asked == [4, 5]


def test_what_went_wrong_ahead_is_raised_where_the_batch_is_wanted(batches, monkeypatch):
    def damaged(_self, step, _part):
        if step:
            raise OSError("the shard is gone")
        return torch.zeros(1, 8), torch.zeros(1, 8)

    monkeypatch.setattr(TrainingBatches, "batch", damaged)
    with BatchFeed(batches, PART, STEPS, torch.device("cpu"), ahead=True) as feed:
        feed.batch(0)
        with pytest.raises(OSError, match="the shard is gone"):
            feed.batch(1)
