"""``--help`` at 80 columns, ``--version``, and what the shell completes."""

import dataclasses
from types import SimpleNamespace

import pytest
import typer

from recorded_sweep import directory_of, member_of, record_sweep
from scalevec import __version__, sweeps
from scalevec.analysis.options import AnalysisOptions
from scalevec.orchestrator.cli import options as completion
from scalevec.orchestrator.cli.app import PANELS, application
from scalevec.orchestrator.executors.registry import EXECUTORS
from support import succeeded


def test_commands_are_listed_in_panels_with_whole_sentences(command):
    shown = command("--help").stdout
    for panel, names in PANELS.items():
        assert f"\n{panel}:\n" in shown
        assert all(f"\n  {name} " in shown for name in names)
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in shown.partition("Options:")[2]


@pytest.mark.parametrize("name", [name for names in PANELS.values() for name in names])
def test_the_help_of_a_command_fits_80_columns(command, name):
    assert max(map(len, succeeded(command(name, "--help")).stdout.splitlines())) <= 80


def test_the_help_of_run_says_what_each_executor_is(command):
    shown = " ".join(command("run", "--help").stdout.split())
    assert all(f"{name} ({registered.help})" in shown for name, registered in EXECUTORS.items())


def test_the_version_is_that_of_the_package(command):
    assert command("--version").stdout == f"scalevec {__version__}\n"


def test_every_command_that_prints_for_programs_has_json():
    commands = typer.main.get_command(application()).commands
    without = {"demo", "results", "dashboard", "corpus", "store", "schema", "logs"}
    for name in commands.keys() - without:
        assert any("--json" in parameter.opts for parameter in commands[name].params), name


def test_fit_compare_table_figures_and_report_take_the_same_options_but_those_that_they_could_only_refuse():
    commands = typer.main.get_command(application()).commands
    options = {f"--{option.name.replace('_', '-')}" for option in dataclasses.fields(AnalysisOptions)}
    comparison = {"--margin", "--looks"}
    without = {
        "fit": {*comparison, "--repeated-seeds"},
        "predict": {*comparison, "--repeated-seeds"},
        "compare": {*comparison, "--interval"},
        "table": comparison,
        "figures": {*comparison, "--interval"},
        "report": {*comparison, "--interval"},
    }
    for name, missing in without.items():
        taken = {opt for parameter in commands[name].params for opt in parameter.opts}
        assert options - taken == missing, name


def completed(prompt: str, monkeypatch, capsys) -> set[str]:
    """What bash is offered after ``prompt``."""
    words = prompt.split(" ")
    monkeypatch.setenv("_SCALEVEC_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", prompt)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setattr("sys.argv", ["scalevec"])
    with pytest.raises(SystemExit):
        application()(prog_name="scalevec")
    return set(capsys.readouterr().out.split())


def test_closed_sets_are_completed(monkeypatch, capsys):
    assert completed("scalevec run x --executor ", monkeypatch, capsys) == set(EXECUTORS)
    assert "power-floor" in completed("scalevec fit x --law pow", monkeypatch, capsys)
    assert completed("scalevec table x over", monkeypatch, capsys) == {"overhead"}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record_sweep(tmp_path / "runs", "small", [member_of(arm, 0) for arm in ("none", "unified")])
    return tmp_path / "runs"


def test_sweeps_are_completed_from_runs_files_and_the_shipped_ones(runs, tmp_path):
    (tmp_path / "smart.yaml").write_text("")
    context = SimpleNamespace(params={"runs_dir": runs})
    expected = {"small", "smart.yaml", *(name for name in sweeps.shipped_names() if name.startswith("sm"))}
    assert set(completion.sweeps(context, "sm")) == expected


def test_trials_and_profiles_are_completed(runs, tmp_path, monkeypatch):
    trial_id = directory_of(runs, "none", 0).trial_id
    context = SimpleNamespace(params={"runs_dir": runs, "source": "my.yaml"})
    assert completion.trials(context, trial_id[:3]) == [trial_id[:12]]
    monkeypatch.delenv("SCALEVEC_PROFILES", raising=False)
    (tmp_path / "profiles.yaml").write_text("site: {cpus: 3}\nother: {cpus: 1}")
    assert {"site", "other"} <= set(completion.profiles(context, ""))
