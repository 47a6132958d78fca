"""Training: what is recorded, when it stops, and that a resume changes no bit, of mixtures too."""

import re
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from scalevec.model.config import (
    BALANCINGS,
    EVALUATED_AT_ONCE,
    OPTIMIZERS,
    PER,
    Experts,
    OptimizerConfig,
    RunOptions,
    ScheduleConfig,
    Trial,
)
from scalevec.model.decoder import Transformer
from scalevec.model.identity import stream_of
from scalevec.model.strategies import PRESETS
from scalevec.model.train import checkpoint as checkpoints
from scalevec.model.train import loop
from scalevec.model.train.checkpoint import load_newest
from scalevec.model.train.loop import TrainingRun, train
from scalevec.model.train.record import RunProgress, TrainingInterruptedError, has_diverged
from support import SEQUENCE, STEPS, MemoryRecorder

OUTCOME = ("status", "loss", "loss_validation", "loss_initial", "steps", "n_tokens")


def run(trial, corpus, folder, stop_after=None, **options):
    recorder = MemoryRecorder(stop_after)
    return train(trial, corpus, RunOptions(**options), recorder, folder), recorder


def test_a_trial_learns_and_says_what_it_did(trial, corpus, tmp_path):
    result, recorder = run(trial, corpus, tmp_path)
    assert result["status"] == "completed"
    assert result["loss"] < result["loss_initial"] - 0.5
    assert result["steps"] == STEPS == len(recorder.rows)
    assert result["n_params"] == 16 * 16 * 4 + 3 * 16 * 48
    assert result["epochs"] == trial.tokens / corpus.tokens["train"]
    assert any(name.startswith("sv/") for name in recorder.rows[-1])


def test_a_split_of_few_sequences_has_no_blocks_and_that_is_said(trial, corpus, tmp_path):
    result, recorder = run(replace(trial, evaluation_tokens=15 * SEQUENCE), corpus, tmp_path)
    assert result["loss_blocks"] is None
    assert result["loss"] > 0
    assert any("the test split has 15 sequences, 16 or more are needed" in text for text in recorder.said)


def test_a_trial_is_evaluated_on_the_beginning_of_each_split(trial, corpus, tmp_path):
    few, all_of_it = (replace(trial, evaluation_tokens=n, stream="ab" * 32) for n in (20 * SEQUENCE, 0))
    first, _ = run(few, corpus, tmp_path / "few")
    whole, _ = run(all_of_it, corpus, tmp_path / "all")
    assert first["block_tokens"] == [SEQUENCE] * 20
    assert sum(whole["block_tokens"]) == corpus.tokens["test"] - 1
    expected = (True, True)
    assert (first["loss"] != whole["loss"], first["loss_validation"] != whole["loss_validation"]) == expected


def test_the_log_has_both_ends_and_a_step_every_few_seconds(trial, corpus, tmp_path, capsys, monkeypatch):
    run(trial, corpus, tmp_path / "seldom")
    assert [line.split()[1] for line in step_lines(capsys)] == [f"1/{STEPS}", f"{STEPS}/{STEPS}"]
    monkeypatch.setattr(loop, "LOG_S", 0.0)
    run(trial, corpus, tmp_path / "always")
    lines = step_lines(capsys)
    assert len(lines) == STEPS
    assert re.fullmatch(rf"step 2/{STEPS}  loss \d+\.\d{{4}}  [\d,]+ tokens/s", lines[1])


def step_lines(capsys) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]


def of_model(**changes):
    return lambda trial: replace(trial, model=replace(trial.model, **changes))


def trained_by(name, **options):
    return lambda trial: replace(trial, optimizer=OptimizerConfig(name, **options))


FOUR = Experts(n_experts=4, top_k=2, feed_forward=24)
RESUMED = {
    "no vectors": (of_model(scale_vectors=PRESETS["none"]), (3, 4, 11)),
    "unified-dp": (of_model(scale_vectors=PRESETS["unified-dp"]), (3, 4, 11)),
    "the first step": (of_model(), (1,)),
    "the last step": (of_model(), (STEPS - 1,)),
    **{name: (trained_by(name), (5, 13)) for name in OPTIMIZERS if name not in ("adamw", "sgd")},
    "sgd": (trained_by("sgd", momentum=0.9, nesterov=True), (5, 13)),
    **{
        f"experts, {kind}": (of_model(experts=replace(FOUR, balancing=kind, bias_rate=0.05)), (3, 11))
        for kind in BALANCINGS
    },
}
"""What is trained, and after which steps it is stopped."""


@pytest.mark.parametrize("name", RESUMED)
def test_a_run_that_is_stopped_and_resumed_ends_with_the_same_bits(name, trial, train_with_stops, tmp_path):
    change, stops = RESUMED[name]
    undisturbed, reference = train_with_stops(change(trial), tmp_path / "undisturbed")
    resumed, recorder = train_with_stops(change(trial), tmp_path / "resumed", stops)
    assert [resumed[name] for name in OUTCOME] == [undisturbed[name] for name in OUTCOME]
    assert resumed["resumes"] == len(stops)
    timeless = [{k: v for k, v in row.items() if k != "tokens_per_s"} for row in recorder.rows]
    assert timeless == [{k: v for k, v in row.items() if k != "tokens_per_s"} for row in reference.rows]


def test_rows_beyond_the_checkpoint_are_cut_and_run_again(trial, corpus, tmp_path):
    recorder = stopped(trial, corpus, tmp_path, 6)
    lost_with_the_process = [{"step": 7, "loss": -1.0}, {"step": 8, "loss": -1.0}]
    recorder.rows += lost_with_the_process
    train(trial, corpus, RunOptions(), recorder, tmp_path)
    assert [row["step"] for row in recorder.rows] == list(range(1, STEPS + 1))
    assert all(row["loss"] > 0 for row in recorder.rows)


def stopped(trial, corpus, folder, *stops, **options):
    """A recorder of a run that was stopped after so many steps, each time."""
    recorder = MemoryRecorder()
    for stop in stops:
        recorder.stop_after = stop
        with pytest.raises(TrainingInterruptedError):
            train(trial, corpus, RunOptions(**options), recorder, folder)
    recorder.stop_after = None
    return recorder


@pytest.mark.parametrize("lost", ["the end of the newest checkpoint", "rows, as by a loss of power"])
def test_an_unusable_newest_checkpoint_falls_back_to_an_older_one_and_says_so(lost, trial, corpus, tmp_path):
    undisturbed, _ = run(trial, corpus, tmp_path / "undisturbed")
    recorder = stopped(trial, corpus, tmp_path / "kept", 5, 9)
    newest = sorted((tmp_path / "kept").iterdir())[-1]
    if lost.startswith("rows"):
        del recorder.rows[6:]
    else:
        newest.write_bytes(newest.read_bytes()[:-100])
    why = "whole only to step 6" if lost.startswith("rows") else "damaged"
    result = train(trial, corpus, RunOptions(), recorder, tmp_path / "kept")
    assert result["loss"] == undisturbed["loss"]
    assert [row["step"] for row in recorder.rows] == list(range(1, STEPS + 1))
    assert any(newest.stem in line and why in line for line in recorder.said)
    assert any("after step 5" in line for line in recorder.said)


def test_rows_are_on_the_disk_before_a_checkpoint_is_written(monkeypatch, trial, corpus, tmp_path):
    recorder = MemoryRecorder(stop_after=6)
    synced: list[int] = []
    monkeypatch.setattr(checkpoints, "save_checkpoint", lambda *_: synced.append(recorder.synced))
    with pytest.raises(TrainingInterruptedError):
        train(trial, corpus, RunOptions(), recorder, tmp_path)
    assert synced == [6]


def test_a_run_that_starts_over_keeps_its_new_checkpoints(trial, corpus, tmp_path):
    recorder = stopped(trial, corpus, tmp_path, 5, 9)
    for path in tmp_path.iterdir():
        path.write_bytes(b"damaged")
    recorder.stop_after = 3
    with pytest.raises(TrainingInterruptedError):
        train(trial, corpus, RunOptions(), recorder, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000003.safetensors"]


@pytest.mark.parametrize("micro_batch", [1, 3])
def test_micro_batches_change_only_the_order_of_sums(micro_batch, trial, corpus, tmp_path):
    whole, rows = run(trial, corpus, tmp_path / "whole")
    parts, part_rows = run(trial, corpus, tmp_path / "parts", micro_batch=micro_batch)
    assert part_rows.rows[0]["loss"] == pytest.approx(rows.rows[0]["loss"], rel=1e-6)
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-3)
    assert parts["micro_batch"] == micro_batch


def test_a_loss_that_is_no_number_ends_the_run_as_diverged(trial, corpus, tmp_path):
    optimizer = replace(trial.optimizer, learning_rate=1e30, clip_norm=1e30)
    wild = replace(trial, optimizer=optimizer, schedule=ScheduleConfig())
    result, recorder = run(wild, corpus, tmp_path)
    assert result["status"] == "diverged"
    assert result["loss"] is None
    assert result["loss_validation"] is None
    assert result["diverged_at_step"] == len(recorder.rows) < STEPS


def test_a_mean_above_the_start_is_divergence_only_after_a_fifth_of_the_steps(trial):
    long = replace(trial, tokens=1000 * trial.batch_tokens)
    progress = RunProgress(step=200, loss_initial=5.0)
    progress.recent_losses.extend([5.1] * 50)
    assert not has_diverged(long, progress, 5.1)
    progress.step = 201
    assert has_diverged(long, progress, 5.1)
    progress.recent_losses.extend([4.8] * 50)
    assert not has_diverged(long, progress, 4.8)


def test_bfloat16_trains_to_about_the_same_loss(trial, corpus, tmp_path):
    trial = replace(trial, stream=stream_of(trial))  # of one start, which a trial's precision has a part in
    exact, _ = run(trial, corpus, tmp_path / "float32")
    rounded, _ = run(replace(trial, precision="bfloat16"), corpus, tmp_path / "bfloat16")
    assert rounded["loss"] == pytest.approx(exact["loss"], abs=0.03)
    assert rounded["loss"] != exact["loss"]


@pytest.mark.parametrize(("keep", "optimizer_kept"), [("weights", False), ("all", True)])
def test_kept_weights_are_those_of_the_end(keep, optimizer_kept, trial, corpus, tmp_path):
    run(trial, corpus, tmp_path, keep=keep)
    checkpoint = load_newest(tmp_path, pytest.fail)
    assert checkpoint.step == STEPS
    assert any(name.startswith("optimizer.") for name in checkpoint.tensors) == optimizer_kept


@pytest.mark.parametrize(("micro_batch", "at_once"), [(2, 2), (0, EVALUATED_AT_ONCE // SEQUENCE)])
def test_an_evaluation_takes_a_micro_batch_at_a_time_without_gradients(
    micro_batch, at_once, trial, corpus, tmp_path, monkeypatch
):
    seen = []
    original = Transformer.token_losses

    def token_losses(model, inputs, targets):
        held = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        seen.append((len(inputs), torch.is_inference_mode_enabled(), held))
        return original(model, inputs, targets)

    monkeypatch.setattr(Transformer, "token_losses", token_losses)
    few = replace(trial, evaluation_tokens=(at_once + 1) * SEQUENCE)
    run(few, corpus, tmp_path, micro_batch=micro_batch)
    assert seen[0] == (at_once, True, [])
    assert max(length for length, _, _ in seen) == at_once


@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_run_that_ends_in_its_evaluation_trains_no_step_again(keep, trial, corpus, tmp_path, monkeypatch):
    undisturbed, _ = run(trial, corpus, tmp_path / "undisturbed")
    recorder, options = MemoryRecorder(), RunOptions(checkpoint_s=1e-9, keep=keep)
    fail = Mock(side_effect=RuntimeError("the evaluation was lost"))
    with monkeypatch.context() as patched:
        patched.setattr(loop, "evaluate", fail)
        with pytest.raises(RuntimeError, match="the evaluation was lost"):
            train(trial, corpus, options, recorder, tmp_path / "lost")
    monkeypatch.setattr(TrainingRun, "_step", fail)
    result = train(trial, corpus, options, recorder, tmp_path / "lost")
    assert [result[name] for name in OUTCOME] == [undisturbed[name] for name in OUTCOME]


@pytest.mark.parametrize(
    ("changes", "micro_batch"),
    [
        ({"scale_vectors": PRESETS["baseline"]}, 0),
        ({}, 2),
        ({"experts": replace(FOUR, per="batch")}, 2),
        ({"experts": replace(FOUR, balancing="bias")}, 2),
    ],
    ids=["baseline", "unified", "experts balanced over the batch", "experts balanced by a bias"],
)
def test_recomputed_blocks_change_no_bit(changes, micro_batch, trial, corpus, tmp_path):
    trial = of_model(**changes)(trial)
    kept, rows = run(trial, corpus, tmp_path / "kept", micro_batch=micro_batch)
    again, rows_again = run(trial, corpus, tmp_path / "again", micro_batch=micro_batch, recompute="block")
    assert [again[name] for name in OUTCOME] == [kept[name] for name in OUTCOME]
    assert again["recompute"] == "block"
    losses = [[row["loss"], row["gradient_norm"]] for row in rows.rows]
    assert losses == [[row["loss"], row["gradient_norm"]] for row in rows_again.rows]


def test_a_checkpoint_that_cannot_be_written_ends_the_run(trial, corpus, tmp_path, monkeypatch):
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(checkpoints, "save_checkpoint", Mock(side_effect=full))
    # The last one is not: interrupted, with a checkpoint.
    for options in ({"checkpoint_s": 1e-9}, {"keep": "all"}, {"stop_after": 3}):
        with pytest.raises(OSError, match="No space left"):
            run(trial, corpus, tmp_path, **options)


def test_the_result_says_where_the_time_went(trial, corpus, tmp_path):
    result, recorder = run(trial, corpus, tmp_path, keep="all")
    timing, seconds = result["timing"], [trial.batch_tokens / row["tokens_per_s"] for row in recorder.rows]
    shown = [min(seconds), *(timing["step_s"][name] for name in ("p5", "p50", "p95")), max(seconds)]
    assert shown == sorted(shown)
    assert 0 < timing["data_s"] < result["wall_s"]
    assert timing["evaluation_s"] > 0
    assert timing["checkpoints_s"] > 0
    assert timing["mfu"] is None  # of a CPU no peak is stated


def with_experts(trial: Trial, experts: Experts) -> Trial:
    return replace(trial, model=replace(trial.model, experts=experts))


def test_the_bias_is_in_the_checkpoint_and_the_load_is_not(trial, corpus, tmp_path):
    trial = with_experts(trial, replace(FOUR, balancing="bias"))
    stopped(trial, corpus, tmp_path, 5)
    checkpoint = load_newest(tmp_path, print)
    bias = checkpoint.tensors["model.blocks.0.feed_forward.bias"]
    assert bias.abs().sum() > 0
    torch.testing.assert_close(bias / 0.001, (bias / 0.001).round(), rtol=0, atol=1e-3)
    assert not any(name.endswith("load") for name in checkpoint.tensors)


@pytest.mark.parametrize("per", PER)
def test_micro_batches_of_a_mixture_change_only_the_order_of_sums(per, trial, corpus, tmp_path):
    trial = with_experts(trial, replace(FOUR, per=per, loss_coefficient=1.0))
    first = [first_row(trial, corpus, tmp_path / str(n), micro_batch=n) for n in (0, 1)]
    for name in ("loss", "gradient_norm"):
        assert first[1][name] == pytest.approx(first[0][name], rel=1e-5)


def test_the_recorded_loss_has_no_penalty_in_it(trial, corpus, tmp_path):
    trial = replace(trial, stream="ab" * 32)
    penalised, plain = (
        first_row(with_experts(trial, replace(FOUR, balancing=kind, loss_coefficient=5.0)), corpus, tmp_path)
        for kind in ("loss", "none")
    )
    assert penalised["loss"] == plain["loss"]
    assert penalised["gradient_norm"] != plain["gradient_norm"]


def first_row(trial, corpus, folder, **options):
    """What is recorded of the first step."""
    return stopped(trial, corpus, folder / trial.model.experts.balancing, 1, **options).rows[0]
