"""Compiled blocks: the same function as uncompiled ones; a run keeps the arithmetic that it began with."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from scalevec.model import feed_forward
from scalevec.model.config import ARCHITECTURES, Experts, RunOptions, Shape
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.strategies import PRESETS
from scalevec.model.train.devices import missing_compiler
from scalevec.model.train.loop import train
from scalevec.model.train.record import TrainingInterruptedError
from scalevec.model.train.step import compile_blocks, fold_once
from support import MemoryRecorder, with_strategy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_compiler("cpu")), reason="needs a C++ compiler"),
]


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory):
    """What one test has compiled is there for the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def loss_and_gradients(model, tokens, way=None):
    with way or nullcontext():
        loss, _ = model.training_loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
    return loss.detach(), [parameter.grad for parameter in model.parameters()]


def require_the_same_step(config, dtype, relative, absolute, *, once=False):
    tokens = torch.randint(256, (2, 17), generator=torch.Generator().manual_seed(0))
    plain, compiled = Transformer(config).to(dtype), Transformer(config).to(dtype)
    for model in (plain, compiled):
        initialise(model, seed=0)
    compile_blocks(compiled)
    torch._dynamo.reset()  # what an earlier test has compiled is compiled again
    before = graphs()
    loss, gradients = loss_and_gradients(plain, tokens)
    way = fold_once(compiled, None) if once else None
    other_loss, other_gradients = loss_and_gradients(compiled, tokens, way)
    torch.testing.assert_close(other_loss, loss, rtol=relative, atol=0)
    for ours, theirs in zip(other_gradients, gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=relative, atol=absolute)
    return graphs() - before


def graphs():
    """How many functions torch has compiled in this process."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def with_layers(config, layers):
    return replace(config, shape=replace(config.shape, layers=layers))


@pytest.mark.nightly
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_compiled_step_is_the_plain_step_and_equal_blocks_share_it(architecture, preset, trial):
    config = replace(with_strategy(trial, preset).model, architecture=architecture)
    compiled = require_the_same_step(with_layers(config, 3), torch.float64, relative=1e-12, absolute=1e-12)
    assert compiled == 1


@pytest.mark.nightly
@pytest.mark.parametrize("preset", PRESETS)
def test_so_it_is_with_weights_that_are_padded_and_fold_once(preset, trial, monkeypatch):
    monkeypatch.setitem(feed_forward.PADDED_TO, "cpu", 64)
    config = with_layers(with_strategy(trial, preset).model, 3)
    compiled = require_the_same_step(config, torch.float64, relative=1e-12, absolute=1e-12, once=True)
    assert compiled <= 1  # another strategy's weights may look alike


@pytest.mark.nightly
def test_of_a_mixture_what_is_before_the_router_is_compiled(trial):
    model = replace(trial.model, shape=Shape(16, 2, 2, 2, 32), experts=Experts(4, 2, 16))
    require_the_same_step(model, torch.float64, relative=1e-12, absolute=1e-12)


def train_on(trial, corpus, folder, recorder, *, compiled):
    # Two shapes: a batch has four sequences.
    options = RunOptions(compiled=compiled, micro_batch=3)
    return train(with_strategy(trial, "baseline"), corpus, options, recorder, folder)


def test_a_compiled_run_is_resumed_with_the_same_bits_as_it_began_whatever_is_asked(trial, corpus, tmp_path):
    undisturbed, resumed = MemoryRecorder(), MemoryRecorder(stop_after=5)
    result = train_on(trial, corpus, tmp_path / "undisturbed", undisturbed, compiled=True)
    with pytest.raises(TrainingInterruptedError):
        train_on(trial, corpus, tmp_path / "resumed", resumed, compiled=True)
    resumed.stop_after = None
    again = train_on(trial, corpus, tmp_path / "resumed", resumed, compiled=False)
    assert (result["arithmetic"], again["arithmetic"]) == ("compiled", "compiled")
    assert again["loss"] == result["loss"]
    assert [row["loss"] for row in resumed.rows] == [row["loss"] for row in undisturbed.rows]
    assert any("goes on compiled" in text for text in resumed.said)


def test_a_run_that_began_eager_stays_so(trial, corpus, tmp_path):
    recorder = MemoryRecorder(stop_after=5)
    with pytest.raises(TrainingInterruptedError):
        train_on(trial, corpus, tmp_path, recorder, compiled=False)
    recorder.stop_after = None
    assert train_on(trial, corpus, tmp_path, recorder, compiled=True)["arithmetic"] == "eager"
