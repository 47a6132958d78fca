"""Trunks in a sweep: what its plan saves, who waits for whom, and what follows when a trial fails."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import faulty_simulation
import simulations
from faulty_simulation import Attempt, FaultySimulation
from recorded_sweep import directories_in
from scalevec.analysis import compare, fit
from scalevec.model.accounting import flops_per_token
from scalevec.model.config import RunOptions
from scalevec.model.data.corpus import open_corpus
from scalevec.model.identity import branch_step, trial_from_fields, trial_id, trunk_id
from scalevec.model.train import checkpoint_steps
from scalevec.model.train.loop import train
from scalevec.orchestrator.scheduling.trunk_book import is_needed
from scalevec.orchestrator.sources.sources import open_sweep
from scalevec.orchestrator.sweep.plan_text import plan_text
from scalevec.orchestrator.sweep.planning import gpu_hours, planned
from scalevec.results.run_directory import trunk_path
from simulations import SWEEP, simulated
from support import MemoryRecorder, finished

BUDGETS = [10, 20, 40]
WSD: dict[str, Any] = {
    "trial": {"batch_tokens": 2048, "warmup_tokens": 20480},
    "schedules": ["wsd"],
    "tokens_per_parameter": BUDGETS,
    "ladder": [{"name": "small", "width": 64, "layers": 2}],
    "seeds": [2, 3],
}
ONE_TRUNK = {"arms": {"baseline": {"scale_vectors": "baseline"}}, "seeds": [0]}


sweep_run = partial(simulations.sweep_run, of=SWEEP | WSD)


def first_starts(done) -> list[tuple[Any, int, float, str | None]]:
    """Of each trial: the trial, the step its first attempt begins with, when, and what it says of it."""
    rows = []
    for member in done.run.members():
        events = done.run.directory(member.trial).events()
        start = next(event for event in events if event["state"] == "running")
        rows.append((member.trial, start["step"], start["virtual_s"], start.get("note")))
    return rows


# The plan


def test_the_plan_counts_the_tokens_that_trunks_save(tmp_path):
    rows = planned(sweep_run(tmp_path, **ONE_TRUNK))
    members = sweep_run(tmp_path, **ONE_TRUNK).members()
    branches = [branch_step(member.trial) * 2048 for member in members]
    assert branches == [pytest.approx(0.8 * row["n_tokens"], abs=2048) for row in rows]
    assert [row["n_tokens_from_trunk"] for row in rows] == [*branches[:2], 0]  # the longest trains the trunk
    assert {row["trunk_id"] for row in rows} == {trunk_id(members[0].trial)}
    per_token = flops_per_token(members[0].trial.model, members[0].trial.sequence_length)
    for row in rows:
        assert row["flops_from_trunk"] == pytest.approx(per_token * row["n_tokens_from_trunk"], abs=1)


def test_what_a_trunk_saves_needs_no_gpu_hours_and_is_said(tmp_path):
    run = sweep_run(tmp_path, resources={"default": {"gpus": 1}})
    rows = planned(run)
    flops = sum(row["flops_from_trunk"] for row in rows)
    branches = "8 trials branch off 4 trunks that other trials train"
    assert f"trunks: {branches}; that saves {flops:.3g} FLOPs" in plan_text(run, rows, 1)
    spared = sum(row["seconds_from_trunk"] for row in rows)
    assert spared > 0
    assert gpu_hours(rows) == pytest.approx((sum(row["seconds"] for row in rows) - spared) / 3600)


def test_trials_whose_rate_is_still_to_be_chosen_are_counted_too(tmp_path):
    tune = {"learning_rate": [0.01, 0.02], "rungs": ["small"], "seeds": [100]}
    rows = planned(sweep_run(tmp_path, tune=tune))
    compared = [row for row in rows if row["trial_id"] is None]
    plain = planned(sweep_run(tmp_path))
    for name in ("n_tokens_from_trunk", "trunk_bytes"):
        assert [row[name] for row in compared] == [row[name] for row in plain]
    assert sum(row["n_tokens_from_trunk"] > 0 for row in rows) == len(compared) * 2 // 3 + 2 * 2 * 2


def test_checks_of_a_carried_rate_share_no_trunk(tmp_path):
    rungs = (("a", 1), ("b", 2))
    ladder = [{"name": name, "width": 32, "layers": layers, "heads": 2} for name, layers in rungs]
    tune = {"learning_rate": [0.01, 0.02], "rungs": ["a"], "seeds": [100], "check_carried": True}
    rows = planned(sweep_run(tmp_path, ladder=ladder, tune=tune))
    checks = [row for row in rows if row["trial_id"] is None and row["stage"] == "tuning"]
    assert len(checks) >= 3
    assert {row["trunk_id"] for row in checks} == {None}


def test_one_trial_that_is_left_saves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    done = simulated(tmp_path, **WSD | ONE_TRUNK)
    trial = done.run.members()[0].trial
    done.run.directory(trial).result_path.unlink()
    assert [row["n_tokens_from_trunk"] for row in planned(done.run)] == [0, 0, 0]


def test_a_schedule_without_a_trunk_saves_nothing(tmp_path):
    run = sweep_run(tmp_path, schedules=["cosine"])
    rows = planned(run)
    assert {row["trunk_id"] for row in rows} == {None}
    assert "trunk" not in plan_text(run, rows, 1)


def test_a_warm_up_that_is_a_share_of_the_tokens_shares_no_trunk(tmp_path):
    run = sweep_run(tmp_path, trial={"batch_tokens": 2048, "warmup_fraction": 0.05})
    assert sum(row["n_tokens_from_trunk"] for row in planned(run)) == 0


# Who waits for whom


def test_the_longest_trains_the_trunk_and_the_others_branch_off(tmp_path):
    done = simulated(tmp_path, **WSD)
    assert len(done.results()) == 12
    leaders = 0
    for trial, step, at_s, note in first_starts(done):
        if trial.tokens == max(t.tokens for t, *_ in first_starts(done)):
            assert (step, at_s, note) == (0, 0.0, None)
            leaders += 1
        else:
            assert step == branch_step(trial)
            assert at_s > 0
            assert note == f"branched from a trunk after step {step}"
    assert leaders == 4


def test_a_branch_is_sent_as_soon_as_its_state_is_kept(tmp_path):
    done = simulated(tmp_path, **WSD | ONE_TRUNK)
    results = [done.run.directory(member.trial).result() for member in done.run.members()]
    step_s = results[2]["wall_s"] / results[2]["steps"]
    for trial, step, at_s, _ in first_starts(done)[:2]:
        assert at_s == pytest.approx(step * step_s)
        assert step == branch_step(trial)


def test_trials_of_other_trunks_do_not_wait(tmp_path):
    done = simulated(tmp_path, slots=2, **WSD)
    executor_s = max(at_s for *_, at_s, _ in first_starts(done))
    begun_at_once = [trial for trial, step, at_s, _ in first_starts(done) if at_s == 0.0]
    assert len({trunk_id(trial) for trial in begun_at_once}) == 2
    assert executor_s > 0


def test_with_one_slot_nothing_deadlocks(tmp_path):
    assert len(simulated(tmp_path, slots=1, **WSD).results()) == 12


def test_the_time_of_a_branch_is_that_of_the_run_alone(tmp_path):
    together = simulated(tmp_path / "together", **WSD).results()
    for budget in BUDGETS:
        alone = simulated(tmp_path / str(budget), **WSD | {"tokens_per_parameter": [budget]}).results()
        for name, result in alone.items():
            assert result["trunk_step"] == 0
            assert together[name] == result | {
                "trunk_step": together[name]["trunk_step"],
                "wall_s": pytest.approx(result["wall_s"]),
                "tokens_per_s": pytest.approx(result["tokens_per_s"]),
            }


def test_trunks_are_gone_when_nobody_needs_them(tmp_path):
    done = simulated(tmp_path, **WSD)
    names = {trunk_id(member.trial) for member in done.run.members()}
    assert (tmp_path / "trunks").is_dir()
    assert [name for name in names if trunk_path(tmp_path, str(name)).exists()] == []


# When the trial that trains the trunk fails


def test_a_trunk_that_another_sweep_needs_stays_until_that_has_ended_too(tmp_path):
    other = sweep_run(tmp_path, **ONE_TRUNK | {"name": "other", "tokens_per_parameter": [5, 40]})
    other.write_members(other.members())
    folder = trunk_path(tmp_path, str(trunk_id(other.members()[0].trial)))
    simulated(tmp_path, **WSD | ONE_TRUNK)
    assert checkpoint_steps(folder) != []
    simulated(tmp_path, **WSD | ONE_TRUNK | {"name": "other", "tokens_per_parameter": [5, 40]})
    assert not folder.exists()


@pytest.mark.parametrize(("state", "stays"), [("queued", True), ("failed", False), ("cancelled", False)])
def test_a_trial_that_is_given_up_needs_no_trunk(state, stays, tmp_path):
    run = sweep_run(tmp_path, **ONE_TRUNK)
    run.write_members(run.members())
    for member in run.members():
        run.directory(member.trial).path.mkdir(parents=True)
        run.directory(member.trial).append_event(state)
    assert is_needed(tmp_path, str(trunk_id(run.members()[0].trial))) == stays


@pytest.fixture
def strike(monkeypatch, tmp_path):
    """Lets a fault strike the longest trial of ``ONE_TRUNK`` in some attempts, after a part of its work."""
    longest = sweep_run(tmp_path / "looked at", **ONE_TRUNK).members()[-1].trial
    drawn = faulty_simulation.draw_attempt

    def with_fault(fault: str, part: float, attempts: range) -> str:
        def draw(section: Any, name: str, number: int, avoid: Any) -> Attempt:
            strikes = name == trial_id(longest) and number in attempts
            return replace(drawn(section, name, number, avoid), fault=fault if strikes else None, part=part)

        monkeypatch.setattr(faulty_simulation, "draw_attempt", draw)
        return trial_id(longest)

    return with_fault


@pytest.mark.parametrize("part", [0.1, 0.22], ids=["before any state is kept", "after the first state"])
def test_the_next_trial_takes_the_trunk_on_where_the_first_is_given_up(part, strike, tmp_path):
    failing = strike("error", part, range(1, 99))
    rarely = {"resources": {"default": {"checkpoint_s": 1e6}}}
    done = simulated(tmp_path / "runs", **WSD | ONE_TRUNK | rarely)
    assert done.outcome.failed.keys() == {failing}
    assert len(done.results()) == 2
    short, middle, _ = first_starts(done)
    assert short[1] == branch_step(short[0])
    assert middle[1] == (0 if part == 0.1 else branch_step(short[0]))
    assert (middle[2] < short[2]) == (part == 0.1)


def test_a_trunk_whose_trial_is_killed_is_taken_on_by_that_trial(strike, tmp_path):
    killed = strike("killed", 0.5, range(1, 2))
    done = simulated(tmp_path / "runs", **WSD | ONE_TRUNK)
    assert len(done.results()) == 3
    assert done.run.directory(done.run.members()[-1].trial).state().attempt == 2
    assert done.results()[killed]["trunk_step"] in (0, *(branch_step(t) for t, *_ in first_starts(done)))
    for trial, step, _, _ in first_starts(done)[:2]:
        assert step == branch_step(trial)


def test_faults_change_no_result(tmp_path):
    calm = simulated(tmp_path / "calm", **WSD)
    faults = {"preempted": 0.2, "killed": 0.2, "error": 0.1, "node_failure": 0.1}
    rough = simulated(tmp_path / "rough", **WSD | {"simulate": {"faults": faults}})
    assert rough.losses() == calm.losses()


def test_a_sweep_that_was_stopped_goes_on_from_the_states_that_are_kept(monkeypatch, tmp_path):
    wait = FaultySimulation.wait

    def interrupted(self, timeout_s):
        if not (ended := wait(self, timeout_s)):
            raise KeyboardInterrupt
        return ended

    monkeypatch.setattr(FaultySimulation, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulated(tmp_path, **WSD | ONE_TRUNK)
    monkeypatch.setattr(FaultySimulation, "wait", wait)
    run = sweep_run(tmp_path, **ONE_TRUNK)
    short = run.members()[0].trial
    assert checkpoint_steps(trunk_path(tmp_path, str(trunk_id(short)))) == [branch_step(short)]
    assert not run.directory(short).events()
    done = simulated(tmp_path, **WSD | ONE_TRUNK)
    assert len(done.results()) == 3
    assert first_starts(done)[0][1] == branch_step(short)


# What is kept of it


def test_the_trials_of_one_trunk_are_a_cluster(tmp_path):
    done = simulated(tmp_path, **WSD)
    members = done.run.folder.members()
    trunks = {done.run.id_of(member.trial): trunk_id(member.trial) for member in done.run.members()}
    assert [member["cluster"] for member in members] == [trunks[member["trial_id"]] for member in members]
    assert len({member["cluster"] for member in members}) == 4


def test_a_trial_that_shares_its_trunk_with_nobody_is_no_cluster(tmp_path):
    done = simulated(tmp_path, **WSD | {"tokens_per_parameter": [10]})
    assert not any("cluster" in member for member in done.run.folder.members())


def test_analysis_does_not_take_the_branches_of_a_trunk_for_independent(monkeypatch, tmp_path):
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    # Beside this noise between seeds the test split's own error is nothing, whatever is drawn.
    simulated(tmp_path / "runs", **WSD | {"simulate": {"pair_noise": 0.5}})
    rows = open_sweep("simulated", tmp_path / "runs").rows
    assert len(rows) == 12
    assert rows["cluster"].nunique() == 4
    comparison = compare(rows, reference="baseline", bootstrap=0).only
    # Two seeds at one rung, whatever the budgets.
    assert (comparison.pairs, round(comparison.loss_difference.df)) == (6, 1)
    fitted = fit(rows, law="power", bootstrap=20)["baseline"]
    assert fitted.n_clusters == 2
    assert "1 degrees of freedom, from seed noise of 2 whole clusters" in fitted.interval_note


# Trained


@pytest.mark.slow
def test_a_sweep_with_trunks_ends_with_the_bits_of_its_trials_alone(text_files, tmp_path):
    text = f"""\
name: trunks
corpus: {{source: text, files: ["{text_files}/*.txt"], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 256, warmup_tokens: 512}}
ladder: [{{name: a, width: 16, layers: 1}}]
tokens_per_parameter: [2, 4]
schedules: [wsd]
arms: {{baseline: {{scale_vectors: baseline}}}}
seeds: [0]
"""
    finished(tmp_path, text)
    directories = directories_in(tmp_path / "runs")
    branched, leader = sorted(directories, key=lambda directory: directory.result()["n_tokens"])
    trial = trial_from_fields(branched.trial()["semantic"])
    assert branched.result()["trunk_step"] == branch_step(trial) > 0
    assert leader.result()["trunk_step"] == 0
    told = next(event["trunk"] for event in branched.events() if event.get("trunk"))
    assert (told["trial_id"], told["step"]) == (leader.trial_id, branch_step(trial))
    assert told["commit"] == leader.environments()[0]["commit"]
    recorder = MemoryRecorder()
    corpus = open_corpus(tmp_path / "runs" / "corpora", trial.corpus)
    alone = train(trial, corpus, RunOptions(), recorder, tmp_path / "alone")
    assert [row["loss"] for row in branched.metrics()] == [row["loss"] for row in recorder.rows]
    for name in ("loss", "loss_validation", "loss_initial", "steps", "n_tokens"):
        assert branched.result()[name] == alone[name]
    assert not list((tmp_path / "runs" / "trunks").rglob("*.safetensors"))
