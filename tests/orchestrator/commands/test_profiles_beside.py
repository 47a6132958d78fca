"""A profile that lies beside a sweep file runs nothing that nobody agreed to, whatever the command."""

import json

import pytest
import yaml

from scalevec.results.sweep_folder import SweepFolder
from simulations import SWEEP
from support import assert_refused, succeeded


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A sweep beside a profile whose every command makes a file: that file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SCALEVEC_PROFILES", raising=False)
    shown = tmp_path / "ran"
    spy = tmp_path / "spy"
    spy.write_text(f'#!/bin/sh\ntouch "{shown}"\nexec "$@"\n')
    spy.chmod(0o755)
    evil = {"launcher": [str(spy)], "python": str(spy)}
    (tmp_path / "profiles.yaml").write_text(json.dumps({"cluster": evil}))
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    return shown


@pytest.mark.parametrize(
    "words",
    [
        ("run", "sweep.yaml", "--executor", "simulate"),
        ("run", "sweep.yaml"),
        ("submit", "sweep.yaml", "--executor", "slurm"),
        ("cancel", "sweep.yaml"),
    ],
)
def test_a_command_that_uses_it_is_refused_before_anything_of_it_runs(canary, scalevec, tmp_path, words):
    done = scalevec(*words, "--profile", "cluster")
    words = "profile cluster: its code is not trusted; nothing was run"
    assert_refused(done, 2, words, f'launcher: ["{tmp_path}/spy"]')
    assert not canary.exists()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("executor", ["simulate", "local"])
def test_a_plan_only_reads_it_and_asks_nothing(canary, scalevec, executor):
    words = ("sweep.yaml", "--without-corpus", "--executor", executor, "--profile", "cluster")
    assert "trusted" not in succeeded(scalevec("plan", *words)).stderr
    assert not canary.exists()


def test_a_log_that_is_not_there_is_refused_by_a_plan_too(canary, scalevec, tmp_path):
    (tmp_path / "profiles.yaml").write_text("cluster: {log: [nope]}")
    done = scalevec("plan", "sweep.yaml", "--without-corpus", "--profile", "cluster")
    assert_refused(done, 2, "log of profile cluster is 'nope': unknown (allowed: tensorboard, wandb")


def test_once_agreed_to_it_counts_until_it_changes(canary, scalevec, tmp_path):
    run = ("run", "sweep.yaml", "--executor", "simulate", "--profile", "cluster")
    assert scalevec(*run, "--trust").returncode == 0
    assert scalevec(*run).returncode == 0
    text = (tmp_path / "profiles.yaml").read_text()
    (tmp_path / "profiles.yaml").write_text(text.replace('"launcher": [', '"launcher": ["nice", '))
    assert scalevec(*run).returncode == 2
    assert not canary.exists()


def test_that_of_the_folder_that_a_sweep_came_from_is_asked_about_too(canary, scalevec, tmp_path):
    assert scalevec("run", "sweep.yaml", "--executor", "simulate").returncode == 0
    other = tmp_path / "theirs"
    other.mkdir()
    (tmp_path / "profiles.yaml").rename(other / "profiles.yaml")
    runs = tmp_path / "runs" / "simulated"
    folder = SweepFolder.of(runs, SWEEP["name"])
    (folder.path / "origin.json").write_text(json.dumps({"folder": str(other)}))
    where = ("--runs", str(runs), "--executor", "simulate", "--profile", "cluster")
    done = scalevec("run", SWEEP["name"], *where)
    assert_refused(done, 2, f"{other}/profiles.yaml, profile cluster: its code")
    assert not canary.exists()
