"""What is recorded of the process that ran a trial, and what is not."""

import sys

import pytest
from simulations import simulated

from orchestrator.provenance import environment

STORE = "postgresql://someone:top-secret@host/name"


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        (["--store", STORE, "run", "my.yaml"], ["--store", "***", "run", "my.yaml"]),
        ([f"--store={STORE}", "run", "my.yaml"], ["--store=***", "run", "my.yaml"]),
        (["store", "rebuild", "--runs", "r"], ["store", "rebuild", "--runs", "r"]),
        (["--debug", "--store"], ["--debug", "--store"]),
    ],
)
def test_the_command_is_recorded_without_the_store(monkeypatch, given, recorded):
    monkeypatch.setattr(sys, "argv", ["scalevec", *given])
    assert environment()["command"] == ["scalevec", *recorded]


def test_no_run_directory_of_a_simulation_holds_the_stores_password(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["scalevec", "--store", STORE, "run", "my.yaml"])
    assert simulated(tmp_path, seeds=[0]).results()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"my.yaml" in path.read_bytes() for path in files)
    assert not [path for path in files if b"top-secret" in path.read_bytes()]
