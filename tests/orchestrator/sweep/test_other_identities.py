"""Sweeps of identity version 1 are read, and trained again only on request; plans name what is elsewhere."""

import json

import pytest
import yaml

from scalevec.results.sweep_folder import SweepFolder
from simulations import SWEEP, simulated
from version_1 import make_version_1

SIMULATE = ("--executor", "simulate")


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A folder with the sweep file and its runs of version 1."""
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    runs = tmp_path / "runs" / "simulated"
    simulated(runs)
    make_version_1(runs)
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    return runs


def test_a_sweep_of_version_1_is_read(old, scalevec):
    status = scalevec("status", "simulated", "--runs", old, "--json")
    assert json.loads(status.stdout)[0]["states"]["completed"] == 8
    rows = json.loads(scalevec("results", "simulated", "--runs", old, "--format", "json").stdout)
    assert {(row["identity_version"], row["stream"], row["loss_blocks"]) for row in rows} == {(1, None, None)}
    compared = json.loads(scalevec("compare", "simulated", "--runs", old, "--json").stdout)
    assert compared[0]["pairs"] == 4


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_what_training_again_costs_is_told_before_anything_is_done(old, scalevec, verb):
    members = SweepFolder.of(old, "simulated").members()
    told = scalevec(verb, "sweep.yaml", *SIMULATE)
    assert "has 8 results of identity version 1" in told.stderr
    assert "--anew" in told.stderr
    assert told.returncode == (2 if verb == "run" else 0)
    assert ("To train them again takes 8 trials" in told.stderr) == (verb == "run")
    assert SweepFolder.of(old, "simulated").members() == members


def test_on_request_all_is_trained_and_the_sweep_then_holds_the_new_ones(old, scalevec):
    assert scalevec("run", "sweep.yaml", *SIMULATE, "--anew").returncode == 0
    assert scalevec("run", "sweep.yaml", *SIMULATE).returncode == 0
    members = SweepFolder.of(old, "simulated").members()
    assert {member["identity_version"] for member in members} == {2}
    rows = json.loads(scalevec("results", "simulated", "--runs", old, "--format", "json").stdout)
    assert {(row["identity_version"], row["status"]) for row in rows} == {(2, "completed")}


def test_a_sweep_without_results_of_version_1_needs_no_word(tmp_path, scalevec):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    assert scalevec("run", "sweep.yaml", *SIMULATE).returncode == 0
    assert "identity version" not in scalevec("run", "sweep.yaml", *SIMULATE).stderr


def test_an_arm_that_is_a_setting_elsewhere_is_said_to_be_another_trial(tmp_path, scalevec):
    """Simulated trials of one law: the arms have no gain, so that both sweeps draw from one corpus."""
    elsewhere = {
        "name": "elsewhere",
        "trial": {**SWEEP["trial"], "scale_vectors": "unified"},
        "arms": {"all": {}},
    }
    for name, sections in (("sweep", SWEEP), ("other", SWEEP | elsewhere)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(sections, sort_keys=False))
    assert scalevec("run", "other.yaml", *SIMULATE).returncode == 0
    told = scalevec("plan", "sweep.yaml", *SIMULATE).stderr
    assert "4 trials of arm unified would be of arm all in sweep elsewhere but for the random numbers" in told
    assert "arm baseline would" not in told
