"""The whole machinery on a planted law: what was planted comes out, whatever happens on the way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scalevec import sweeps
from scalevec.analysis import compare
from scalevec.orchestrator.sources.sources import open_sweep
from scalevec.results.run_directory import RunDirectory
from simulations import SWEEP, Simulated, simulated
from support import assert_refused, succeeded

TEN_PERCENT = {"preempted": 0.03, "killed": 0.02, "error": 0.01, "out_of_memory": 0.01, "node_failure": 0.02}


@pytest.fixture
def simulate(tmp_path: Path) -> Callable[..., Simulated]:
    """Runs the sweep with some sections changed in the folder ``runs``."""
    return lambda runs="runs", **sections: simulated(tmp_path / runs, **sections)


def one_trial(**faults: float) -> dict[str, Any]:
    """Sections of a sweep of a single trial in which these faults strike."""
    small = {"ladder": SWEEP["ladder"][:1], "arms": {"baseline": {}}, "seeds": [0]}
    return small | {"simulate": {"faults": faults}}


def ends(directory: RunDirectory) -> list[str]:
    return [e["state"] for e in directory.events() if e["state"] in ("completed", "diverged", "failed")]


# What is planted


def test_a_simulation_is_the_same_each_time(simulate):
    sections = {"simulate": {"faults": {**TEN_PERCENT, "preempted": 0.3}}, "seeds": list(range(10))}
    first, second = simulate("one", **sections), simulate("two", **sections)
    assert first.results() == second.results() != {}
    assert sum(result["resumes"] for result in first.results().values()) > 0


def test_another_seed_of_the_simulation_is_another_noise(simulate):
    first = simulate(simulate={"seed": 0}).losses()
    second = simulate(simulate={"seed": 1}).losses()
    assert first.keys() == second.keys()
    assert not set(first.values()) & set(second.values())


def test_faults_change_no_loss(simulate):
    quiet = simulate("quiet").losses()
    assert simulate("faults", simulate={"faults": {"preempted": 0.3, "out_of_memory": 0.2}}).losses() == quiet


def test_seed_noise_is_shared_by_the_arms_and_cancels_in_their_difference(simulate):
    noise = {"pair_noise": 0, "block_noise": 0, "seed_noise": 0.1}
    losses = simulate(simulate={**noise, "arms": {"unified": {"E": 1.0}}}).losses()
    unified = [cell for cell in losses if cell[0] == "unified"]
    differences = [losses[cell] - losses["baseline", *cell[1:]] for cell in unified]
    assert differences == pytest.approx([1.0 - 1.69] * len(differences), abs=1e-6)
    assert len({loss for (arm, *_), loss in losses.items() if arm == "baseline"}) == len(differences)


def test_tuning_finds_the_planted_learning_rate(simulate):
    bowl = {"optimum": 0.004, "at": 1e5, "exponent": -0.25, "curvature": 0.1}
    tune = {"learning_rate": [0.002, 0.004, 0.008]}
    sweep = simulate(tune=tune, simulate={"learning_rate": bowl, "pair_noise": 1e-4})
    for choice in sweep.run.tuner.choices.values():
        best = 0.004 * (choice.n_params / 1e5) ** -0.25
        assert choice.status == "tuned"
        assert choice.vertex == pytest.approx(best, rel=0.01)


def test_a_rate_beyond_the_planted_bound_diverges(simulate):
    bowl = {"optimum": 0.001, "diverges_above": 2}
    sweep = simulate(trial=SWEEP["trial"] | {"learning_rate": 0.003}, simulate={"learning_rate": bowl})
    assert {result["status"] for result in sweep.results().values()} == {"diverged"}


@pytest.mark.slow
def test_the_fit_recovers_the_planted_law(simulate, scalevec, tmp_path):
    widths = (256, 384, 512, 768, 1024, 1536)
    ladder = [{"name": f"w{width}", "width": width, "layers": 8} for width in widths]
    noise = {"seed_noise": 0.001, "pair_noise": 0.001, "block_noise": 0}
    sections = {"tokens_per_parameter": [5, 20, 80, 320], "seeds": [0, 1, 2]}
    simulate(ladder=ladder, **sections, simulate={**noise, "arms": {"unified": {"gain": 1.3}}})
    fit = succeeded(scalevec("fit", "simulated", "--law", "chinchilla", "--json", "--bootstrap", 200))
    planted = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
    (intervals,) = [load["intervals"] for load in json.loads(fit.stdout) if load["arm"] == "baseline"]
    for name, value in planted.items():
        low, high = intervals[name]
        assert low < value < high, name
    assert intervals["alpha"][1] - intervals["alpha"][0] < 0.1


def test_the_comparison_takes_the_options_of_the_sweep_file(simulate, scalevec):
    simulate(compare={"reference": "unified", "level": 0.8, "margin": 0.5})
    (comparison,) = json.loads(scalevec("compare", "simulated", "--json").stdout)
    assert comparison["reference"] == "unified"
    assert "80 % interval" in comparison["sentence"]


# What happens on the way


@pytest.mark.parametrize("fault", ["killed", "error", "node_failure"])
def test_a_fault_without_end_fails_a_trial_that_makes_no_progress(simulate, fault):
    rare_checkpoints = {"resources": {"default": {"checkpoint_s": 1e6}}}
    sweep = simulate(**one_trial(**{fault: 1.0}), **rare_checkpoints)
    (directory,) = sweep.directories()
    events = directory.events()
    assert [event["cause"] for event in events if event["state"] == "pending"] == [fault] * 3
    assert (directory.state().state, directory.state().cause) == ("failed", fault)
    assert list(sweep.outcome.failed) == [directory.trial_id]


def test_a_preempted_trial_goes_on_where_it_was(simulate):
    sweep = simulate(simulate={"faults": {"preempted": 0.7}})
    for directory in sweep.directories():
        started = [event["step"] for event in directory.events() if event["state"] == "running"]
        stopped = [event["step"] for event in directory.events() if event["state"] == "pending"]
        assert started == [0, *stopped]
        assert directory.result()["resumes"] == len(stopped)
    assert any(result["resumes"] > 1 for result in sweep.results().values())


def test_out_of_memory_halves_the_micro_batch_to_one_sequence_and_then_fails(simulate):
    sweep = simulate(**one_trial(out_of_memory=1.0))
    (directory,) = sweep.directories()
    sizes = [event["micro_batch"] for event in directory.events() if event["state"] == "running"]
    assert sizes == [0, 4, 2, 1]
    assert directory.state().cause == "out_of_memory"


def test_the_micro_batch_that_fitted_is_in_the_result(simulate):
    sweep = simulate(seeds=list(range(5)), simulate={"faults": {"out_of_memory": 0.3}})
    for name, result in sweep.results().items():
        events = RunDirectory.of(sweep.run.runs_dir, name).events()
        halvings = sum(event.get("cause") == "out_of_memory" for event in events)
        assert result["micro_batch"] == (8 >> halvings if halvings else 0)
    assert any(result["micro_batch"] for result in sweep.results().values())


def test_a_divergence_is_a_result(simulate):
    sweep = simulate(**one_trial(nan=1.0))
    (directory,) = sweep.directories()
    assert directory.result()["status"] == "diverged"
    assert directory.result()["loss"] is None
    assert ends(directory) == ["diverged"]


def test_nodes_that_fail_everything_are_found_and_avoided(simulate):
    sweep = simulate(seeds=list(range(40)), simulate={"nodes": 8, "bad_nodes": 1})
    events = [event for directory in sweep.directories() for event in directory.events()]
    assert len(sweep.results()) == 160
    assert {e["node"] for e in events if e.get("cause") == "node_failure"} == {"node-000"}
    visits = [e for e in events if e["state"] == "running" and e["node"] == "node-000"]
    assert 2 <= len(visits) <= 2 + 8  # two that tell, and those that had started already


@pytest.mark.slow
def test_five_hundred_trials_with_faults_end_complete_none_lost_none_twice(simulate):
    sweep = simulate(seeds=list(range(125)), slots=32, simulate={"faults": TEN_PERCENT})
    directories = sweep.directories()
    assert len(directories) == len(sweep.results()) == 500
    assert [ends(directory) for directory in directories] == [["completed"]] * 500
    faults = [e for directory in directories for e in directory.events() if e["state"] == "pending"]
    assert len(faults) > 20
    for directory in directories:
        attempts = len(list(directory.claims_path.glob("*.json")))
        assert attempts == len(list(directory.claims_path.glob("*.done")))
        assert attempts == sum(event["state"] == "running" for event in directory.events())


# What is made of it


def test_the_shipped_example_is_small_and_finds_its_gain(scalevec, tmp_path):
    path = tmp_path / "simulate.yaml"
    path.write_text(sweeps.shipped("simulate").read_text())
    succeeded(scalevec("run", "simulate.yaml", "--executor", "simulate"))
    compared = scalevec("compare", "simulate.yaml", "--runs", "runs/simulated")
    unified = next(line for line in compared.stdout.splitlines() if line.startswith("unified "))
    assert " better " in unified, compared.stdout
    assert "follow a planted law; nothing was trained" in compared.stdout


def test_a_sweep_that_says_what_to_simulate_is_not_trained_unasked(scalevec):
    assert_refused(scalevec("run", "simulate"), 2, "give --executor simulate, or local to train it")


@pytest.mark.slow
def test_what_is_made_of_simulated_results_says_so(simulate, scalevec, tmp_path):
    simulate(seeds=[0, 1, 2])
    text = "simulated: 12 of 12 results follow a planted law; nothing was trained"
    for command in (("compare", "simulated", "--json"), ("table", "simulated", "comparison")):
        assert text in scalevec(*command).stdout
    assert "6 of 6 results follow a planted law" in scalevec("fit", "simulated", "--json").stdout
    assert scalevec("report", "simulated", "-o", "report.html").returncode == 0
    assert text in (tmp_path / "report.html").read_text()


def test_a_carried_rate_that_is_checked_has_its_trials_and_its_place_in_the_record(simulate):
    tune = {"learning_rate": [0.005, 0.01, 0.02], "rungs": ["small"], "check_carried": True}
    sweep = simulate(tune=tune)
    assert not sweep.outcome.failed
    members = sweep.run.folder.members()
    checked = [member for member in members if member["lr_status"] == "check"]
    expected = {("baseline", "large", "tuning", 100)}
    assert {(m["arm"], m["rung"], m["stage"], m["seed"]) for m in checked} == expected
    choices = sweep.run.folder.tuning()["choices"]
    (actual,) = [choice for choice in choices if choice["check"]]
    assert (actual["arm"], actual["rung"], actual["status"]) == ("baseline", "large", "carried")
    assert actual["check"]["grid"] == sorted(member["learning_rate"] for member in checked)
    validation = [sweep.results()[member["trial_id"]]["loss_validation"] for member in checked]
    assert actual["check"]["losses"] == validation
    cell = ("baseline", "large", "comparison")
    of_comparison = [m for m in members if (m["arm"], m["rung"], m["stage"]) == cell]
    status = "carried" if actual["check"]["status"] == "inside" else "censored"
    assert {member["lr_status"] for member in of_comparison} == {status}


def test_rates_that_the_reference_shares_are_said_beside_a_comparison(simulate):
    tune = {"share": "reference", "learning_rate": [0.004, 0.008, 0.016], "rungs": ["small"]}
    run = simulate(tune=tune).run
    statuses = {(member.cell.arm, member.cell.rung): member.lr_status for member in run.members()[3:]}
    assert statuses == {
        ("baseline", "small"): "tuned",
        ("unified", "small"): "shared",
        ("baseline", "large"): "carried",
        ("unified", "large"): "shared",
    }
    comparison = compare(open_sweep("simulated", run.runs_dir).rows, reference="baseline", bootstrap=0).only
    assert "both at the rate that was tuned for baseline" in comparison.fair.text
