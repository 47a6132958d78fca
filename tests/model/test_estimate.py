"""What is planned for compiled blocks, along layers, and from what is kept of earlier plans."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from allocations import kept_for_backward
from scalevec.model import accounting, estimate
from scalevec.model.config import (
    Experts,
    ModelConfig,
    OptimizerConfig,
    RunOptions,
    ScheduleConfig,
    Shape,
    Trial,
)
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.estimate import dry_run
from scalevec.model.strategies import PRESETS

SHAPE = Shape(width=128, layers=2, heads=4, kv_heads=2, feed_forward=352)
TRIAL = Trial(
    ModelConfig(SHAPE, 100), OptimizerConfig(), ScheduleConfig(), "c0" * 32, 64, 64 * 64, 64 * 64, seed=0
)


def passes(preset: str, precision: str, layers: int = 2, measured: int = 2, **how: bool) -> dict[str, int]:
    model = ModelConfig(replace(SHAPE, layers=layers), 100, PRESETS[preset])
    options = {"compiled": False, "accumulates": False, "folds_once": False, "recomputes": False} | how
    return dry_run.passes(estimate.Passes(model, 64, 64, 64, precision, "cpu", **options), measured)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"accumulates": True},
        {"recomputes": True},
        {"compiled": True},
        {"compiled": True, "recomputes": True},
        {"compiled": True, "accumulates": True, "folds_once": True},
    ],
    ids=lambda how: " ".join(how) or "plain",
)
def test_four_layers_take_what_two_foretell(how: dict[str, bool]) -> None:
    foretold, run = (passes("unified", "bfloat16", 4, measured, **how) for measured in (2, 4))
    assert foretold == pytest.approx(run, rel=1e-3)


def test_a_compiled_block_that_is_recomputed_keeps_its_input_alone() -> None:
    two, three = (passes("unified", "bfloat16", n, compiled=True, recomputes=True) for n in (2, 3))
    assert three["head"] - two["head"] == pytest.approx(4 * 64 * 64 * SHAPE.width, rel=0.05)


def test_a_process_that_has_planned_trains_with_real_tensors() -> None:
    passes("baseline", "float32", compiled=True)
    model = Transformer(TRIAL.model)
    initialise(model, 0)
    tokens = torch.arange(TRIAL.sequence_length).unsqueeze(0)
    loss, _ = model.training_loss(tokens, tokens)
    assert type(loss) is torch.Tensor
    assert loss.isfinite()


def at_night(value: str) -> object:
    """A parameter like others that every change is tested with."""
    return pytest.param(value, marks=pytest.mark.nightly)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [at_night("float32"), "bfloat16"])
@pytest.mark.parametrize("preset", [at_night("baseline"), "unified", at_night("unified-dp")])
@pytest.mark.parametrize("experts", [None, Experts(4, 2, 88)], ids=["dense", "mixture"])
def test_compiled_blocks_keep_what_is_planned(experts: Experts | None, preset: str, precision: str) -> None:
    """By one block more, so that what is outside of blocks counts for nothing."""
    shape = SHAPE if experts is None else replace(SHAPE, feed_forward=176)
    kept, planned = [], []
    for n in (2, 3):
        model = ModelConfig(replace(shape, layers=n), 100, PRESETS[preset], experts=experts)
        kept.append(kept_for_backward(replace(TRIAL, model=model, precision=precision), compiled=True))
        of = estimate.Passes(model, 64, 64, 64, precision, "cpu", False, True, False, False)
        planned.append(dry_run.passes(of)["head"])
    assert planned[1] - planned[0] == pytest.approx(kept[1] - kept[0], rel=0.05)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SCALEVEC_ESTIMATES_DIR")
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(accounting, "_IN_PROCESS", {})
    accounting.count_parameters.cache_clear()
    return tmp_path / "estimates"


def test_what_is_kept_is_not_measured_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = estimate.memory_of(TRIAL, RunOptions())
    monkeypatch.setattr(accounting, "_IN_PROCESS", {})
    for name in ("passes", "optimizer"):
        monkeypatch.setattr(dry_run, name, None)
    monkeypatch.setattr(accounting, "_counted", None)
    accounting.count_parameters.cache_clear()
    assert estimate.memory_of(TRIAL, RunOptions()) == measured
    assert list(cache.iterdir())


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff", b'{"name": "another", "head": 1}', b"[" * 10_000]
)
def test_a_damaged_or_foreign_file_is_measured_again(content, cache, monkeypatch):
    measured = estimate.memory_of(TRIAL, RunOptions())
    for path in cache.iterdir():
        path.write_bytes(content)
    monkeypatch.setattr(accounting, "_IN_PROCESS", {})
    accounting.count_parameters.cache_clear()
    assert estimate.memory_of(TRIAL, RunOptions()) == measured


def test_a_folder_that_cannot_be_written_keeps_nothing(cache: Path) -> None:
    cache.write_text("a file in its place")
    assert estimate.memory_of(TRIAL, RunOptions()).total > 0
