"""SWEEP on the command line: an existing file, a sweep in the runs directory, or a shipped one."""

from pathlib import Path

import pytest
import yaml

from scalevec import sweeps
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.sources.sources import load_sweep, sweep_folder
from scalevec.results.sweep_folder import SweepFolder
from simulations import SWEEP


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def keep(runs: Path, origin: Path, **sections) -> SweepFolder:
    """A sweep that was run from a file in ``origin``."""
    text = yaml.safe_dump(SWEEP | sections, sort_keys=False)
    folder = SweepFolder.of(runs, (SWEEP | sections)["name"])
    folder.write_sweep(text.encode(), origin)
    return folder


def test_a_file_comes_before_a_sweep_of_the_same_name(runs, tmp_path):
    keep(runs, tmp_path, name="mine")
    Path("mine").write_text(yaml.safe_dump(SWEEP | {"name": "other"}, sort_keys=False))
    assert load_sweep("mine", runs).name == "other"


def test_a_sweep_in_the_runs_directory_comes_before_a_shipped_one(runs, tmp_path, capsys):
    keep(runs, tmp_path, name="quickstart", seeds=[7])
    assert load_sweep("quickstart", runs).seeds == (7,)
    expected = f"sweep quickstart: {runs}/sweeps/quickstart/sweep.yaml, as last run or submitted\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("name", ["quickstart", "paper/main", "small/main"])
def test_a_shipped_sweep_is_found_by_its_name_and_that_is_said(runs, capsys, name):
    assert load_sweep(name, runs, look_for_files=False).source.name == str(sweeps.shipped(name))
    assert capsys.readouterr().err == f"sweep {name}: shipped with scalevec\n"


def test_the_files_of_a_sweep_that_was_run_are_looked_up_beside_the_original(runs, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "a.txt").write_text("text")
    corpus = {"source": "text", "files": ["a.txt"], "tokenizer": "bytes", "sequence_length": 64}
    keep(runs, home, corpus=corpus)
    assert load_sweep("simulated", runs).corpus_files() == [home / "a.txt"]


def test_a_sweep_file_that_is_not_there_has_no_line(runs):
    with pytest.raises(InvalidInputError, match=r"^absent.yaml: no such file$"):
        load_sweep("absent.yaml", runs)


def test_what_nothing_is_called_is_refused_with_what_there_is(runs, tmp_path):
    keep(runs, tmp_path)
    with pytest.raises(InvalidInputError, match=r"no sweep of that name in .*nearest: 'simulated'"):
        load_sweep("simulatd", runs)


@pytest.mark.parametrize("source", ["my.yaml", "simulated"])
def test_the_folder_of_a_sweep_is_found_by_file_and_by_name(runs, tmp_path, source):
    folder = keep(runs, tmp_path)
    Path("my.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    assert sweep_folder(source, runs) == folder


def test_the_folder_of_a_shipped_sweep_has_the_name_in_its_file(runs):
    sweep = sweeps.load(sweeps.shipped("paper/main"), look_for_files=False)
    assert sweep_folder("paper/main", runs).name == sweep.name


def test_the_corpus_of_a_shipped_sweep_is_looked_up_where_the_person_stands(runs):
    with pytest.raises(sweeps.SweepError, match=r"data/\*.parquet.*no such file"):
        load_sweep("paper/main", runs)
    Path("data").mkdir()
    for name in ("a.parquet", "tokenizer.json"):
        Path("data", name).write_text("there")
    assert load_sweep("paper/main", runs).name == "paper-main"


def test_a_file_that_changed_since_its_sweep_was_run_is_no_silent_name_of_the_old_one(runs, tmp_path, capsys):
    text = yaml.safe_dump(SWEEP | {"name": "mine"}, sort_keys=False)
    keep(runs, tmp_path, name="mine")
    Path("mine.yaml").write_text(text)
    sweep_folder("mine.yaml", runs)
    assert not capsys.readouterr().err
    Path("mine.yaml").write_text(text + "# and more\n")
    sweep_folder("mine.yaml", runs)
    assert "mine.yaml has changed since sweep mine was run" in capsys.readouterr().err
