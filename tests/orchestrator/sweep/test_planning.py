"""What a plan counts: GPU hours, bytes and files on disk."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scalevec.model.identity import semantic_fields
from scalevec.orchestrator.cli.output import SCHEMA_VERSION, json_text
from scalevec.orchestrator.costs import SEEN, Cost
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.sweep.plan_text import plan_text
from scalevec.orchestrator.sweep.planning import ONE_SETTING, gpu_hours, planned, power, require_room
from scalevec.results.files import write_json
from scalevec.results.run_directory import RunDirectory
from simulations import sweep_run

SWEEP: dict[str, Any] = {
    "name": "planned",
    "corpus": {"tokenizer": "bytes", "sequence_length": 64},
    "ladder": ["tiny-25k", "tiny-55k"],
    "arms": {"baseline": {"scale_vectors": "baseline"}, "iwd": {"scale_vectors": "iwd"}},
    "seeds": [0, 1],
}


@pytest.fixture
def run_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A sweep's run on an empty folder, with some sections changed; its corpus is a nominal one."""
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))

    return partial(sweep_run, tmp_path / "runs", of=SWEEP)


def test_gpu_hours_are_gpus_times_estimated_time_of_each_trial_that_is_not_done_once(run_of):
    rows = planned(run_of(resources={"default": {"gpus": 1}, "tiny-55k": {"gpus": 0.25}}))
    first = {row["trial_id"]: row for row in rows}.values()  # the two arms are identical by construction
    assert len(first) == len(rows) / 2 == 4
    share = {"tiny-25k": 1, "tiny-55k": 0.25}
    expected = sum(share[row["rung"]] * row["seconds"] for row in first) / 3600
    assert gpu_hours(rows) == pytest.approx(expected)
    assert gpu_hours([row | {"state": "completed"} for row in rows]) == 0


def test_trials_whose_tuned_field_is_open_are_counted_too(run_of):
    tune = {"learning_rate": [0.01, 0.02], "rungs": ["tiny-25k"]}
    rows = planned(run_of(tune=tune, resources={"default": {"gpus": 1}}))
    waiting = [row for row in rows if row["trial_id"] is None]
    assert len(waiting) == 8
    assert gpu_hours(rows) == pytest.approx(gpu_hours(waiting) + sum(r["seconds"] for r in rows[:2]) / 3600)


@pytest.mark.parametrize("field", ["sequence_length", "batch_tokens", "learning_rate"])
def test_what_is_tuned_is_in_the_cost_of_each_trial(field: str, run_of):
    values = {"sequence_length": [128, 512], "batch_tokens": [8192, 16_384], "learning_rate": [0.01, 0.02]}
    run = run_of(trial={"batch_tokens": 8192}, tune={field: values[field], "rungs": ["tiny-25k"]})
    tuned = [(row, member) for row, member in zip(planned(run), run.members(), strict=False)]
    assert len({getattr(m.trial, field, m.trial.optimizer.learning_rate) for _, m in tuned}) == 2
    for row, member in tuned:
        evaluated = sum(run.corpus_facts.held_out_tokens)  # less than a trial is evaluated on at most
        reckoned = Cost(member.trial, run.options(member.cell.rung), evaluated)
        assert (row["flops"], row["memory_bytes"]) == (reckoned.flops, reckoned.memory.total)


def test_the_plan_recomputes_blocks_where_a_card_would_not_hold_an_arm_otherwise_and_says_so(run_of):
    trial = {"batch_tokens": 524_288, "precision": "bfloat16"}
    run = run_of(ladder=["1b"], trial=trial, resources={"default": {"gpus": 1, "micro_batch": 1024}})
    rows = planned(run)
    assert {row["recompute"] for row in rows} == {run.options("1b").recompute} == {"block"}
    assert "recompute: block for" in plan_text(run, rows, 1)
    asked = run_of(ladder=["1b"], resources={"default": {"gpus": 1, "recompute": "none"}})
    assert asked.options("1b").recompute == "none"


def test_a_trial_that_a_card_cannot_hold_is_warned_of_and_on_a_known_card_refused(run_of):
    trial = {"batch_tokens": 524_288, "precision": "bfloat16"}
    resources = {"default": {"gpus": 1, "micro_batch": 4096}}
    run = run_of(ladder=["1b"], trial=trial, resources=resources)
    rows = planned(run)
    require_room(rows)  # nobody said which card
    shown = plan_text(run, rows, 1)
    assert "trials of rung 1b would not fit: needs " in shown
    assert "more than the 80 GB of one H100" in shown
    run.profile = Profile(gpus="a100:1")
    message = r"rung 1b, arm .*micro_batch: \d+ with recompute: block fits"
    with pytest.raises(InvalidInputError, match=message):
        require_room(planned(run))


def test_the_memory_of_a_line_is_that_of_its_largest_trial(run_of):
    run = run_of(optimizers=["sgd", "soap"], ladder=["tiny-25k"])
    rows = planned(run)
    largest = max(row["memory_bytes"] for row in rows) / 1e6
    assert f" {largest:,.0f} MB " in plan_text(run, rows, 1)


@pytest.mark.parametrize(("keep", "bytes_per_parameter"), [("none", 0), ("weights", 4), ("all", 12)])
def test_disk_follows_what_is_kept(run_of, keep, bytes_per_parameter):
    kept, none = planned(run_of(keep=keep))[0], planned(run_of(keep="none"))[0]
    of_checkpoint = kept["disk_bytes"] - none["disk_bytes"]
    assert of_checkpoint == pytest.approx(bytes_per_parameter * kept["n_params_total"], rel=1e-3)
    assert kept["disk_files"] - none["disk_files"] == (keep != "none")


def test_the_plan_says_bytes_files_gpu_hours_and_that_they_are_too_many(run_of):
    run = run_of(resources={"default": {"gpus": 1}}, max_gpu_hours=0.001, keep="weights")
    shown = plan_text(run, planned(run), 1)
    assert "files and folders with keep: weights" in shown
    assert "times: at an assumed 3e+14 FLOPs per second, 30% of an H100" in shown
    assert "more than max_gpu_hours, 0.001; nothing will be submitted" in shown


def test_a_trial_that_two_arms_share_is_summed_up_once(run_of):
    run = run_of()
    rows = planned(run)  # the two arms are identical by construction
    files = sum(row["disk_files"] for row in rows) // 2
    shown = plan_text(run, rows, 1)
    assert "\n4 trials, 0 of them done; " in shown
    assert f"results in {files} files" in shown


def test_the_plan_says_that_measuring_takes_time(run_of):
    run = run_of(measure={"what": ["preconditioner", "sharpness"], "every": 20})
    rows = planned(run)
    shown = plan_text(run, rows, 1)
    assert "preconditioner and sharpness every 20 steps take time that is not in the estimate" in shown
    plain = planned(run_of())
    assert rows[0]["seconds"] == plain[0]["seconds"]
    assert rows[0]["disk_bytes"] > plain[0]["disk_bytes"]


def test_a_worker_is_told_what_to_measure(run_of):
    run = run_of(measure={"what": ["sharpness"], "every": 20})
    options = run.options(next(iter(run.members())).cell.rung)
    assert (options.measure, options.measure_steps) == (("sharpness",), 20)


def test_the_json_holds_every_row(run_of):
    rows = planned(run_of())
    assert json.loads(json_text(rows)) == [{"schema_version": SCHEMA_VERSION, **row} for row in rows]


def test_the_check_of_a_carried_rate_is_planned_before_the_rate_is_known(run_of):
    tune = {"learning_rate": [0.005, 0.01, 0.02], "rungs": ["tiny-25k"], "seeds": [7, 8]}
    tune |= {"check_carried": True}
    rows = planned(run_of(tune=tune))
    tuned = [row for row in rows if (row["stage"], row["rung"]) == ("tuning", "tiny-55k")]
    expected = [("baseline", seed, None) for seed in (7, 8) * 3]
    assert [(row["arm"], row["seed"], row["trial_id"]) for row in tuned] == expected


def test_the_grid_of_a_larger_rung_is_planned_before_it_is_predicted(run_of):
    tune = {"learning_rate": [0.005, 0.01, 0.02, 0.04, 0.08], "seeds": [7], "larger_rungs": "predicted"}
    run = run_of(tune=tune, ladder=["tiny-25k", "tiny-55k", "tiny-83k"])
    rows = planned(run)
    tuned = [row for row in rows if (row["stage"], row["rung"]) == ("tuning", "tiny-83k")]
    assert [row["trial_id"] for row in tuned] == 3 * len(run.sweep.arms) * [None]


def test_a_member_says_its_tokens_per_parameter_whatever_the_budget(run_of):
    for kind, amount in (("tokens", 2e6), ("flops", 1e12), ("tokens_per_parameter", 20)):
        for member in run_of(**{kind: [amount]}).members():
            recorded = member.to_json("0")["tokens_per_parameter"]
            assert recorded == pytest.approx(member.trial.tokens / member.cell.n_params, rel=0.05)


def test_the_plan_of_what_is_done_reads_no_record_of_a_trial(run_of, monkeypatch):
    """Of 100,000 trials the index says their states; each result is only asked whether it is there."""
    run = run_of()
    for member in run.members():
        directory = run.directory(member.trial)
        directory.create(semantic_fields(member.trial), {})
        if directory.result() is None:
            directory.write_result({"status": "completed", "loss": 1.0, "loss_validation": 1.0})
    assert {row["state"] for row in planned(run)} == {"completed"}
    for reader in ("trial", "events", "result"):
        monkeypatch.setattr(RunDirectory, reader, lambda _: pytest.fail("a record was read"))
    assert {row["state"] for row in planned(run)} == {"completed"}


def test_a_plan_counts_the_pairs_that_an_arm_has_and_settings_apart(run_of):
    """Two settings at two rungs with two seeds; one arm in one of the settings only."""
    arms = {name: {"scale_vectors": name} for name in ("baseline", "none", "unified")}
    run = run_of(arms=arms, optimizers=["adamw", "muon"], exclude=[{"arm": "none", "optimizer": "muon"}])
    analysis = power(run, planned(run))
    assert analysis.design.df == 2 * 2
    assert {part.what: part.df for part in analysis.parts} == {ONE_SETTING: 2, "none, in fewer cells": 2}


def test_learning_rates_of_a_grid_share_their_random_numbers(run_of):
    arms = {**SWEEP["arms"], "none": {"scale_vectors": "none"}}
    run = run_of(grid={"learning_rate": [0.01, 0.02, 0.04]}, arms=arms)
    assert power(run, planned(run)).design.df == 2


def test_the_test_split_counts_as_it_is_and_at_most_as_it_is_evaluated(run_of):
    whole, cut = (
        power(run, planned(run)).noise.split_tokens
        for run in (run_of(), run_of(trial={"evaluation_tokens": 1000}))
    )
    assert whole == run_of().corpus_facts.held_out_tokens[1]
    assert cut == 1000


def test_a_trial_takes_as_long_as_finished_ones_did_with_their_evaluation_and_branches_left_out(run_of):
    run = run_of()
    members = list(run.members())
    entries = [member.to_json(run.id_of(member.trial)) for member in members]
    run.folder.write_members(entries)
    assert members[0].cell.rung != members[-1].cell.rung
    damaged = run.directory(members[1].trial)
    damaged.path.mkdir(parents=True)
    write_json(damaged.result_path, {"status": "completed", "loss": 3.0, "wall_s": "x", "n_tokens": 9})
    for member, trunk_step in ((members[0], 0), (members[-1], 5)):
        directory = run.directory(member.trial)
        directory.path.mkdir(parents=True)
        result = {"status": "completed", "loss": 3.0, "wall_s": 90.0, "timing": {"evaluation_s": 10.0}}
        tokens = {"n_tokens": member.trial.tokens, "trunk_step": trunk_step}
        write_json(directory.result_path, result | tokens)
    again = run_of()
    cell = members[0].cell
    assert list(again.pace) == [cell.n_params]
    assert again.pace[cell.n_params] == pytest.approx(100 / cell.n_params / members[0].trial.tokens)
    row = next(row for row in planned(again) if row["rung"] == cell.rung)
    assert (row["rate"], row["seconds"] - row["start_s"]) == (SEEN, pytest.approx(100, rel=1e-3))
