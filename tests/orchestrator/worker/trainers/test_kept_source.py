"""The files of a trainer that was sent away: kept once by their content, and run from there."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from foreign_trials import WHOLE
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.private import KEPT_S
from scalevec.orchestrator.worker.trainers.kept_source import KEPT, from_source, keep_source, module_variables
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import SourceFile, Trainer, file_digest


@pytest.fixture
def private(tmp_path, monkeypatch) -> Path:
    """The private folder of the one who sends and of the worker."""
    (tmp_path / "private").mkdir(mode=0o700)
    monkeypatch.setenv("SCALEVEC_PRIVATE_DIR", str(tmp_path / "private"))
    return tmp_path / "private"


def keep(trials, private: Path) -> None:
    keep_source(trials.root / "runs", private, trials.trial.trainer, trials.folder)


def test_an_edit_changes_nothing_that_was_sent(lab, private):
    trials = lab("print('as sent', Path.cwd())\n" + WHOLE)
    keep(trials, private)
    trials.script.write_text("edited")
    assert trials.run() == WorkerExit.RESULT
    assert f"as sent {trials.folder}" in trials.printed()


@pytest.mark.parametrize("script", ["train.py", "-m"])
def test_an_import_finds_the_version_that_was_sent(lab, private, script):
    trials = lab("import helper; print('helper', helper.VERSION)\n" + WHOLE)
    (trials.folder / "helper.py").write_text("VERSION = 'as sent'")
    files = (*trials.trial.trainer.files, SourceFile("helper.py", file_digest(trials.folder / "helper.py")))
    words = ["train.py"] if script == "train.py" else ["-m", "train"]
    command = (sys.executable, *words, *trials.command[2:])
    trials.trial = replace(trials.trial, trainer=replace(trials.trial.trainer, files=files, command=command))
    trials.directory = RunDirectory.of(trials.root / "runs", trials.trial.trial_id())
    trials.directory.create(trials.trial.semantic_fields(), {})
    keep(trials, private)
    for name in ("helper.py", "train.py"):
        (trials.folder / name).write_text("raise SystemExit('edited')")
    assert trials.run() == WorkerExit.RESULT, trials.printed()
    assert "helper as sent" in trials.printed()


def test_a_module_of_a_package_does_not_stand_before_one_of_pythons_own(lab, tmp_path):
    command, source = ["python", str(tmp_path / "kept" / "lab" / "train.py")], tmp_path / "kept"
    named = module_variables(command, source, tmp_path)["PYTHONPATH"].split(os.pathsep)
    assert named == [str(source / "lab"), str(source), str(tmp_path / "lab"), str(tmp_path)]


def test_files_that_have_changed_before_they_were_sent_are_not_kept(lab, private):
    trials = lab()
    trials.script.write_text("edited")
    keep(trials, private)
    assert list(private.iterdir()) == []
    assert trials.run() == WorkerExit.ERROR


def test_a_runs_folder_keeps_the_text_of_what_was_sent(lab, private):
    trials = lab()
    keep(trials, private)
    (text,) = (trials.root / "runs" / KEPT).iterdir()
    assert json.loads(text.read_text()) == {"train.py": trials.script.read_text()}


def test_what_was_sent_is_removed_once_nothing_has_used_it_for_long(lab, private):
    trials = lab()
    keep(trials, private)
    (kept,) = (private / KEPT).iterdir()
    old = kept.rename(kept.with_name("0" * 32))
    os.utime(old, (time.time() - 2 * KEPT_S,) * 2)
    keep(trials, private)
    assert [path.name for path in (private / KEPT).iterdir()] == [kept.name]


def test_a_kept_file_that_was_damaged_is_not_run(lab, private):
    trials = lab()
    keep(trials, private)
    (copy,) = (private / KEPT).glob("*/train.py")
    copy.write_text("damaged")
    assert trials.run() == WorkerExit.ERROR
    assert str(copy) in trials.last()["error"]


def test_equal_content_is_kept_once(lab, private):
    trials = lab()
    for command in (trials.trial.trainer.command, (sys.executable, "train.py")):
        trainer = replace(trials.trial.trainer, command=command)
        keep_source(trials.root / "runs", private, trainer, trials.folder)
    assert len(list((private / KEPT).iterdir())) == 1


def test_arguments_and_values_that_are_files_of_the_trainer_are_those_kept(tmp_path):
    files = (SourceFile("train.py", ""), SourceFile("conf/a.yaml", ""))
    command = ("python", "./train.py", "--config=conf/a.yaml", "--data=text.txt", "a=b=train.py")
    assert from_source(command, Trainer(command, files=files), tmp_path) == [
        "python",
        f"{tmp_path}/train.py",
        f"--config={tmp_path}/conf/a.yaml",
        "--data=text.txt",
        "a=b=train.py",
    ]


def test_files_that_do_not_lie_below_the_sweeps_folder_are_not_kept(lab, private):
    trials = lab()
    for path in (str(trials.script), "../lab/train.py"):
        trainer = replace(trials.trial.trainer, files=(replace(trials.trial.trainer.files[0], path=path),))
        keep_source(trials.root / "runs", private, trainer, trials.folder)
    assert list(private.iterdir()) == []


def test_what_lies_beside_the_sweep_is_not_imported_where_others_could_have_put_it_there(lab, private):
    trials = lab("name = 'helper'\n__import__(name)\n" + WHOLE)
    (trials.folder / "helper.py").touch()
    keep(trials, private)
    assert trials.run() == WorkerExit.RESULT
    trials = lab("name = 'helper'\n__import__(name)\nlog(1, 4.0)\n" + WHOLE)
    keep(trials, private)
    trials.folder.chmod(0o775)
    assert trials.run() == WorkerExit.ERROR
    assert "No module named 'helper'" in trials.last()["error"]
