"""The commands that messages name can be given as they stand."""

from pathlib import Path

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


def test_a_flag_is_named_where_it_was_given():
    assert command("run", "a.yaml", Path("runs"), retune=True) == "scalevec run a.yaml --retune"
    assert command("run", "a.yaml", Path("runs"), retune=False) == "scalevec run a.yaml"
