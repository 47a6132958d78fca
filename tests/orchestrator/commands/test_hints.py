"""The commands that messages name can be given as they stand."""

import shlex
from pathlib import Path

import pytest

from scalevec.orchestrator.cli.output import command


def test_a_folder_where_the_command_looks_anyway_is_not_named(monkeypatch):
    monkeypatch.delenv("SCALEVEC_RUNS_DIR", raising=False)
    assert command("run", "a.yaml", Path("runs")) == "scalevec run a.yaml"
    monkeypatch.setenv("SCALEVEC_RUNS_DIR", "/far/runs")
    assert command("run", "a.yaml", Path("/far/runs")) == command("run", "a.yaml") == "scalevec run a.yaml"


def test_another_folder_and_the_machines_are_named(monkeypatch):
    monkeypatch.delenv("SCALEVEC_RUNS_DIR", raising=False)
    shown = command("run", "a.yaml", Path("/far/runs"), executor="ray", profile=None)
    assert shown == "scalevec run a.yaml --runs /far/runs --executor ray"


@pytest.mark.parametrize("name", ["my sweep.yaml", "a'b.yaml", "$(reboot).yaml"])
def test_a_shell_takes_every_name_for_what_it_is(name: str):
    words = shlex.split(command("run", name, Path(f"{name}/runs")))
    assert words == ["scalevec", "run", name, "--runs", f"{name}/runs"]


def test_a_flag_is_named_where_it_was_given():
    assert command("run", "a.yaml", Path("runs"), retune=True) == "scalevec run a.yaml --retune"
    assert command("run", "a.yaml", Path("runs"), retune=False) == "scalevec run a.yaml"
