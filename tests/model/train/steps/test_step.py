"""Steps: weights folded once and padded, a device that is not waited for, readings every few steps."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scalevec.model import experts, feed_forward
from scalevec.model.config import (
    OF_ARCHITECTURE,
    OPTIMIZERS,
    Experts,
    ModelConfig,
    OptimizerConfig,
    RunOptions,
    ScheduleConfig,
    Shape,
)
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.strategies import PRESETS
from scalevec.model.train import loop
from scalevec.model.train.loop import TrainingRun, train
from scalevec.model.train.record import TrainingInterruptedError
from scalevec.model.train.step import fold_once
from support import STEPS, MemoryRecorder

SHAPE = Shape(32, 2, 4, 2, 88)
EXPERTS = Experts(4, 2, 24, shared_experts=1)
TOKENS = torch.randint(128, (4, 17), generator=torch.Generator().manual_seed(0))


def config_of(preset, architecture="llama", shape=SHAPE, **fields):
    fields |= OF_ARCHITECTURE[architecture]
    return ModelConfig(shape, 128, PRESETS[preset], architecture=architecture, **fields)


def drawn_model(config, dtype):
    """A model whose vectors are not at their start, where much is alike."""
    model = Transformer(config).to(dtype)
    initialise(model, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model


def loss_and_gradients(model, way=None, **autocast):
    """Of two micro-batches."""
    total = 0.0
    with way or nullcontext():
        for tokens in TOKENS.split(2):
            with torch.autocast("cpu", torch.bfloat16, enabled=bool(autocast)):
                loss, penalty = model.training_loss(tokens[:, :-1], tokens[:, 1:])
            (loss if penalty is None else loss + penalty).backward()
            total += loss.detach()
    return total, [parameter.grad for parameter in model.parameters()]


def of_three_steps(trial):
    schedule = replace(trial.schedule, warmup_tokens=0)
    return replace(trial, schedule=schedule, tokens=3 * trial.batch_tokens)


def require_the_same(config, dtype, tolerance, monkeypatch):
    expected = loss_and_gradients(drawn_model(config, dtype))
    monkeypatch.setitem(feed_forward.PADDED_TO, "cpu", 64)
    model = drawn_model(config, dtype)
    actual = loss_and_gradients(model, fold_once(model, None))
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("architecture", OF_ARCHITECTURE)
@pytest.mark.parametrize("preset", PRESETS)
def test_fold_once_and_padded_a_step_is_the_plain_step(preset, architecture, monkeypatch):
    require_the_same(config_of(preset, architecture), torch.float64, 1e-12, monkeypatch)


@pytest.mark.parametrize("experts", ["shared", "own"])
@pytest.mark.parametrize("preset", ["baseline", "unified"])
def test_so_it_is_of_a_mixture(preset, experts, monkeypatch):
    config = config_of(preset, shape=replace(SHAPE, feed_forward=72), experts=EXPERTS)
    config = replace(config, scale_vectors=replace(config.scale_vectors, experts=experts))
    require_the_same(config, torch.float64, 1e-12, monkeypatch)


def test_padded_channels_are_multiples_of_64(monkeypatch):
    monkeypatch.setitem(feed_forward.PADDED_TO, "cpu", 64)
    unit = drawn_model(config_of("unified"), torch.float64).blocks[0].feed_forward
    weights = unit.weights()
    assert (weights.gate.shape, weights.up.shape, weights.down.shape) == ((128, 32), (128, 32), (32, 128))
    assert unit.gate.weight.shape == (88, 32)


def test_gradients_of_bfloat16_weights_are_added_up_in_float32():
    """Beside a sum of 256, contributions of 1 are lost in bfloat16."""
    model = drawn_model(config_of("none"), torch.float32)
    attention = model.blocks[0].attention
    with fold_once(model, torch.bfloat16):
        held = model.blocks[0].folded_weights.attention
        assert (held.joint.dtype, held.output.dtype) == (torch.bfloat16, torch.bfloat16)
        for size in (256.0, 1.0, 1.0):
            (held.output.sum() * size).backward()
    assert torch.equal(attention.output.weight.grad, torch.full((32, 32), 258.0))


def test_without_a_gradient_of_its_own_a_weight_has_none_of_zeros():
    model = drawn_model(config_of("baseline"), torch.float64)
    with fold_once(model, None):
        model.blocks[0].folded_weights.attention.output.sum().backward()
    gradients = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert gradients == {"blocks.0.attention.output.weight"}


def test_what_is_held_ends_with_the_step_even_if_it_fails():
    model = drawn_model(config_of("baseline"), torch.float64)
    with pytest.raises(RuntimeError), fold_once(model, None):
        raise RuntimeError
    assert [block.folded_weights for block in model.blocks] == [None, None]


def test_a_run_of_compiled_blocks_in_micro_batches_folds_once_a_step(trial, corpus, tmp_path, monkeypatch):
    """Other runs keep the sums that they always had."""
    trial, folded, folding = of_three_steps(trial), [], loop.fold_once
    monkeypatch.setattr(loop, "compile_blocks", lambda model: None)
    monkeypatch.setattr(loop, "fold_once", lambda *given: folded.append(1) or folding(*given))
    results = {}
    for name, options in {
        "plain": RunOptions(micro_batch=2),
        "whole": RunOptions(compiled=True),
        "once": RunOptions(compiled=True, micro_batch=2),
    }.items():
        folded.clear()
        results[name] = train(trial, corpus, options, MemoryRecorder(), tmp_path / name)["loss"]
        assert len(folded) == (trial.steps if name == "once" else 0)
    assert results["once"] == pytest.approx(results["plain"], rel=1e-5)


@pytest.mark.parametrize(("residual_type", "expected"), [(None, torch.float32), (torch.bfloat16,) * 2])
@pytest.mark.parametrize("architecture", OF_ARCHITECTURE)
@pytest.mark.parametrize("mixture", [False, True])
def test_the_residual_stream_keeps_its_type_in_every_sublayer(residual_type, expected, architecture, mixture):
    fields = {"shape": replace(SHAPE, feed_forward=72), "experts": EXPERTS} if mixture else {}
    model = drawn_model(config_of("unified", architecture, **fields), torch.float32)
    model.residual_type = residual_type
    seen = []
    for block in model.blocks:
        block.register_forward_hook(lambda block, inputs, output: seen.extend((inputs[0], output[0])))
    loss, gradients = loss_and_gradients(model, narrow=True)
    assert {x.dtype for x in seen} == {expected}
    assert {gradient.dtype for gradient in gradients} == {torch.float32}
    exact, _ = loss_and_gradients(drawn_model(model.config, torch.float64))
    assert loss.item() == pytest.approx(exact.item(), rel=2e-2)


def test_outside_of_autocast_the_residual_stream_is_that_of_the_embedding():
    """Measurements are taken in the type of the parameters."""
    model = drawn_model(config_of("baseline"), torch.float64)
    model.residual_type = torch.bfloat16
    assert model.final_states(TOKENS).dtype == torch.float64
    assert model(TOKENS).dtype == torch.float64


def test_a_trial_names_its_residual_stream(trial, corpus, tmp_path):
    trial = replace(of_three_steps(trial), precision="bfloat16-residual")
    run = loop.TrainingRun(trial, corpus, RunOptions(), MemoryRecorder(), tmp_path)
    assert run.model.residual_type == torch.bfloat16
    assert run.run()["precision"] == "bfloat16-residual"


WAITING = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.bincount.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.unique_dim.default,
    torch.ops.aten._unique2.default,
}


class Asked(TorchDispatchMode):
    """Counts operations that wait for the device; an optimizer's counters of steps are never on it."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.optimizer = optimizer
        self.operations: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        counters = [state.get("step") for state in self.optimizer.state.values()]
        if func in WAITING and not any(args[0] is counter for counter in counters):
            self.operations[str(func)] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "mixture", [None, Experts(n_experts=4, top_k=2, feed_forward=24)], ids=["dense", "mixture"]
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nothing_is_read_from_the_device_within_a_step(name, mixture, trial, corpus, tmp_path, monkeypatch):
    trial = replace(trial, optimizer=OptimizerConfig(name), model=replace(trial.model, experts=mixture))
    # A GPU has one grouped product for all experts, and one_hot looks at its input on a CPU alone.
    monkeypatch.setattr(experts, "looped_products", lambda rows, weights, load: rows @ weights[0].T)
    monkeypatch.setattr(
        torch.nn.functional, "one_hot", lambda chosen, n: chosen.unsqueeze(-1) == torch.arange(n)
    )
    run = TrainingRun(trial, corpus, RunOptions(micro_batch=2), MemoryRecorder(), tmp_path)
    with run.writer, run.feed:
        run._step(0)
        with Asked(run.optimizer) as asked:
            run._step(1)
    assert asked.operations == {}


TIMES = ("tokens_per_s", "wall_s", "timing", "data_s")


@pytest.fixture
def every_seventh(monkeypatch):
    """The device is waited for after every seventh step, as a GPU might be."""
    monkeypatch.setattr(loop, "steps_between_readings", lambda trial, options: 7)


def timeless(row):
    return {name: value for name, value in row.items() if name not in (*TIMES, "peak_memory_bytes")}


@pytest.mark.parametrize("micro_batch", [0, 3])
def test_rows_and_result_are_those_of_reading_every_step(
    micro_batch, trial, train_with_stops, tmp_path, request
):
    result, each = train_with_stops(trial, tmp_path / "each", micro_batch=micro_batch)
    request.getfixturevalue("every_seventh")
    later, seventh = train_with_stops(trial, tmp_path / "seventh", micro_batch=micro_batch)
    assert [*map(timeless, seventh.rows)] == [*map(timeless, each.rows)]
    assert len(each.rows) == STEPS
    assert (later["loss"], later["loss_validation"]) == (result["loss"], result["loss_validation"])


def test_a_run_diverges_at_the_same_step_and_records_none_beyond(trial, train_with_stops, tmp_path, request):
    wild = replace(trial, optimizer=replace(trial.optimizer, learning_rate=1e30, clip_norm=1e30))
    wild = replace(wild, schedule=ScheduleConfig())
    result, each = train_with_stops(wild, tmp_path / "each")
    request.getfixturevalue("every_seventh")
    later, seventh = train_with_stops(wild, tmp_path / "seventh")
    assert later["diverged_at_step"] == result["diverged_at_step"] == len(seventh.rows) == len(each.rows)
    assert later["steps"] == result["steps"]


@pytest.mark.usefixtures("every_seventh")
def test_a_stop_leaves_a_checkpoint_of_the_last_step_on_record(trial, corpus, tmp_path):
    undisturbed = train(trial, corpus, RunOptions(), MemoryRecorder(), tmp_path / "undisturbed")
    recorder = MemoryRecorder(stop_after=3)
    with pytest.raises(TrainingInterruptedError) as stop:
        train(trial, corpus, RunOptions(), recorder, tmp_path / "stopped")
    assert stop.value.step == len(recorder.rows) == 7
    recorder.stop_after = None
    assert train(trial, corpus, RunOptions(), recorder, tmp_path / "stopped")["loss"] == undisturbed["loss"]
