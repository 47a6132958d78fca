"""The commands that scalevec prints are ones that a shell takes as they stand."""

import shlex
from pathlib import Path

import pytest
import yaml

from scalevec.orchestrator.cli.output import command
from scalevec.orchestrator.commands.run.retry import retry
from scalevec.orchestrator.commands.run.run import run
from scalevec.orchestrator.errors import Exit
from scalevec.results.run_directory import RunDirectory, trial_ids
from simulations import SWEEP

HARD = "my sweep; it's $HOME.yaml"


@pytest.fixture
def path(tmp_path, monkeypatch) -> str:
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path(HARD).write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    return HARD


def simulate(path: str) -> Exit:
    return run(path, Path("runs"), "simulate").write()


def command_in(text: str, name: str) -> list[str]:
    """The words of a command at the end of the line that says it."""
    line = next(line for line in text.splitlines() if f"scalevec {name} " in line)
    return shlex.split(line[line.rindex(f"scalevec {name} ") :])


def test_of_a_sweep_that_is_done(path, capsys):
    assert simulate(path) is Exit.DONE
    assert command_in(capsys.readouterr().out, "report")[:3] == ["scalevec", "report", HARD]


def test_of_a_sweep_with_failed_trials(path, capsys):
    simulate(path)
    runs = Path("runs/simulated")
    directory = RunDirectory.of(runs, next(trial_ids(runs)))
    directory.result_path.unlink()
    directory.append_event("failed", cause="error")
    capsys.readouterr()
    assert simulate(path) is Exit.SOME_FAILED
    assert command_in(capsys.readouterr().err, "run")[:3] == ["scalevec", "run", HARD]
    assert retry(path, runs).write() is Exit.DONE
    assert command_in(capsys.readouterr().out, "run")[:3] == ["scalevec", "run", HARD]


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
