"""Measuring along a run: what is recorded, of scale vectors too, when, and that the run does not feel it."""

import time
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from scalevec.model.config import MEASURES as NAMES
from scalevec.model.config import OptimizerConfig, RunOptions, Shape, Trial
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.identity import stream_of
from scalevec.model.strategies import PRESETS
from scalevec.model.theory import measure, sharpness
from scalevec.model.theory.measure import NEAR_ZERO, vector_statistics
from scalevec.model.theory.preconditioner import Preconditioner
from scalevec.model.theory.sharpness import Sharpness
from scalevec.model.train.devices import is_out_of_memory
from scalevec.model.train.loop import train
from scalevec.model.train.optim import build_optimizer, set_learning_rate
from support import BATCH_TOKENS, SEQUENCE, STEPS, MemoryRecorder, with_strategy

EVERY = {"measure": NAMES, "measure_steps": 12}
OUTCOME = ("loss", "loss_validation", "loss_initial")


@pytest.fixture
def trial(trial) -> Trial:
    """Of two layers, so that there is more than one of each kind."""
    return replace(trial, model=replace(trial.model, shape=Shape(16, 2, 2, 2, 24)))


def timeless(rows):
    return [{name: value for name, value in row.items() if name != "tokens_per_s"} for row in rows]


@pytest.mark.slow
def test_measuring_changes_no_bit_and_a_resume_no_measurement(trial, train_with_stops, tmp_path, monkeypatch):
    monkeypatch.setattr(sharpness, "BATCH_TOKENS", 2 * SEQUENCE)
    expected, plain = train_with_stops(trial, tmp_path / "plain")
    result, measured = train_with_stops(trial, tmp_path / "measured", **EVERY)
    assert [result[name] for name in OUTCOME] == [expected[name] for name in OUTCOME]
    without = [{n: v for n, v in row.items() if not n.startswith("theory/")} for row in measured.rows]
    assert timeless(without) == timeless(plain.rows)
    _, resumed = train_with_stops(trial, tmp_path / "resumed", (9,), **EVERY)
    assert timeless(resumed.rows) == timeless(measured.rows)
    rows = [row["step"] for row in measured.rows if "theory/sharpness" in row]
    assert rows == [row["step"] for row in measured.rows if "theory/query/cosine_gradient" in row]
    assert rows == [1, 12, STEPS]


class Slow:
    """Takes a thousand seconds before the step and a thousand after it."""

    def __init__(self, clock):
        self.clock = clock

    def before_step(self):
        self.clock[0] += 1000

    def after_step(self):
        self.clock[0] += 1000
        return {}


def test_the_time_that_measuring_takes_is_not_training_time(trial, corpus, tmp_path, monkeypatch):
    clock = [0.0]

    def now() -> float:
        clock[0] += 0.001
        return clock[0]

    monkeypatch.setattr(time, "monotonic", now)
    monkeypatch.setattr(time, "perf_counter", now)
    monkeypatch.setattr(measure, "Sharpness", lambda *_: Slow(clock))
    recorder = MemoryRecorder()
    options = RunOptions(measure=("sharpness",), measure_steps=1)
    result = train(trial, corpus, options, recorder, tmp_path)
    assert clock[0] > 2000 * STEPS
    assert result["wall_s"] < 10
    assert all(row["tokens_per_s"] > BATCH_TOKENS for row in recorder.rows)


def moved(trial: Trial, optimizer: str) -> dict[str, list[float]]:
    """What the preconditioner measure finds around the first step of ``optimizer``, in float64."""
    trial = replace(trial, optimizer=OptimizerConfig(optimizer, learning_rate=1e-3))
    model = Transformer(trial.model).double()
    initialise(model, stream_of(trial))
    tokens = torch.randint(256, (2, SEQUENCE + 1), generator=torch.Generator().manual_seed(1))
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    built = build_optimizer(model, trial)
    set_learning_rate(built, 1e-3)
    preconditioner = Preconditioner(trial, model, built)
    preconditioner.before_step()
    built.step()
    return preconditioner.after_step()


def test_gradient_descent_moves_as_predicted_with_its_decay_set_apart(trial):
    row = moved(trial, "sgd")
    for name in ("query", "gate", "head"):
        assert max(row[f"theory/{name}/relative_error"]) < 0.01
        assert min(row[f"theory/{name}/cosine_predicted"]) > 0.9999
        assert min(row[f"theory/{name}/norm_decay"]) > 0
    assert len(row["theory/query/norm"]) == 2
    assert row["theory/query/conserved_drift"] == pytest.approx([0, 0], abs=1e-3)


def test_the_drift_is_measured_from_the_start_of_the_run(trial):
    """A vector that was moved by hand shows as drift: mean |1.5^2 - 1| over mean(1 + |w_j|^2)."""
    trial = with_strategy(trial, "hg")
    model = Transformer(trial.model)
    initialise(model, stream_of(trial))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    preconditioner = Preconditioner(trial, model, optimizer)
    query = model.blocks[1].attention.query
    with torch.no_grad():
        query.input_vector.gain.fill_(1.5)
    preconditioner.before_step()
    scale = (1 + query.weight.detach().double().square().sum(0)).mean().item()
    drift = preconditioner.after_step()["theory/query/conserved_drift"]
    assert drift == pytest.approx([0.0, 1.25 / scale], rel=1e-4)


def test_arms_are_measured_on_one_batch(trial, corpus):
    batches = []
    for arm, seed in (("none", 0), ("unified", 5)):
        other = replace(with_strategy(trial, arm), seed=seed)
        batches.append(Sharpness(other, Transformer(other.model), corpus.split("train")).inputs)
    assert torch.equal(*batches)


def test_a_measurement_out_of_memory_causes_no_smaller_micro_batches(trial, corpus, tmp_path, monkeypatch):
    no_memory = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
    monkeypatch.setattr(measure, "Sharpness", no_memory)
    with pytest.raises(measure.MeasurementError, match="takes more memory than the device has") as caught:
        train(trial, corpus, RunOptions(measure=("sharpness",)), MemoryRecorder(), tmp_path)
    assert not is_out_of_memory(caught.value)


def test_statistics_are_taken_of_the_vectors_in_effect_by_kind(build):
    model = build(replace(PRESETS["or"], reparameterization="product"))
    with torch.no_grad():
        for block in model.blocks:
            block.attention.shared_vector.beta.fill_(2.0)
        model.blocks[0].feed_forward.shared_vector.alpha.fill_(NEAR_ZERO / 2)
    statistics = vector_statistics(model)
    assert statistics["sv/attention_shared/mean"] == 2.0
    assert statistics["sv/attention_shared/deviation"] == 0.0
    assert statistics["sv/feed_forward_shared/near_zero"] == 0.5
    assert statistics["sv/final/mean"] == 1.0


def test_a_kind_of_several_layers_is_given_by_layer_too(build):
    model = build(PRESETS["baseline"])
    with torch.no_grad():
        model.blocks[1].attention.shared_vector.gain[:4] = 0.0
    statistics = vector_statistics(model)
    assert statistics["sv/attention_shared/near_zero/layers"] == [0.0, 0.25]
    assert statistics["sv/attention_shared/mean/layers"] == [1.0, 0.75]
    for name in ("mean", "near_zero"):
        by_layer = statistics[f"sv/attention_shared/{name}/layers"]
        assert statistics[f"sv/attention_shared/{name}"] == pytest.approx(sum(by_layer) / 2)
