"""The files of a trainer that was sent away: kept once by their content, and run from there."""

import os
import shutil
import sys
import time
from dataclasses import replace

import pytest

from foreign_trials import WHOLE
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.snapshots.unused import KEPT_S, drop_unused_sources
from scalevec.orchestrator.worker.trainers.kept_source import (
    KEPT,
    from_source,
    keep_source,
    module_variables,
)
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.foreign_trial import SourceFile, Trainer, file_digest


def test_an_edit_changes_nothing_that_was_sent(lab):
    trials = lab("print('as sent', Path.cwd())\n" + WHOLE)
    keep_source(trials.root / "runs", trials.trial.trainer, trials.folder)
    trials.script.write_text("edited")
    assert trials.run() == WorkerExit.RESULT
    assert f"as sent {trials.folder}" in trials.printed()


def test_a_kept_script_still_imports_what_lies_beside_the_sweep(lab):
    trials = lab("import helper\n" + WHOLE)
    (trials.folder / "helper.py").touch()
    keep_source(trials.root / "runs", trials.trial.trainer, trials.folder)
    assert trials.run() == WorkerExit.RESULT


@pytest.mark.parametrize("script", ["train.py", "-m"])
def test_an_import_finds_the_version_that_was_sent(lab, script):
    trials = lab("import helper; print('helper', helper.VERSION)\n" + WHOLE)
    (trials.folder / "helper.py").write_text("VERSION = 'as sent'")
    files = (*trials.trial.trainer.files, SourceFile("helper.py", file_digest(trials.folder / "helper.py")))
    words = ["train.py"] if script == "train.py" else ["-m", "train"]
    command = (sys.executable, *words, *trials.command[2:])
    trials.trial = replace(trials.trial, trainer=replace(trials.trial.trainer, files=files, command=command))
    trials.directory = RunDirectory.of(trials.root / "runs", trials.trial.trial_id)
    trials.directory.create(trials.trial.semantic_fields(), {})
    keep_source(trials.root / "runs", trials.trial.trainer, trials.folder)
    for name in ("helper.py", "train.py"):
        (trials.folder / name).write_text("raise SystemExit('edited')")
    assert trials.run() == WorkerExit.RESULT, trials.printed()
    assert "helper as sent" in trials.printed()


def test_a_module_of_a_package_does_not_stand_before_one_of_pythons_own(lab, tmp_path):
    command, source = ["python", str(tmp_path / "kept" / "lab" / "train.py")], tmp_path / "kept"
    named = module_variables(command, source, tmp_path)["PYTHONPATH"].split(os.pathsep)
    assert named == [str(source / "lab"), str(source), str(tmp_path / "lab"), str(tmp_path)]


def test_files_that_have_changed_before_they_were_sent_are_not_kept(lab):
    trials = lab()
    trials.script.write_text("edited")
    keep_source(trials.root / "runs", trials.trial.trainer, trials.folder)
    assert not (trials.root / "runs" / KEPT).exists()
    assert trials.run() == WorkerExit.ERROR


@pytest.fixture
def kept_long_ago(lab):
    """The run directory of a trial, and what was kept of its trainer two days ago."""
    trials = lab()
    keep_source(trials.root / "runs", trials.trial.trainer, trials.folder)
    (kept,) = (trials.root / "runs" / KEPT).iterdir()
    os.utime(kept, (time.time() - 2 * KEPT_S,) * 2)
    return trials, kept


def test_what_was_kept_is_removed_once_no_trial_rests_on_it(kept_long_ago):
    trials, kept = kept_long_ago
    shutil.rmtree(trials.directory.path)
    drop_unused_sources(trials.root / "runs")
    assert not kept.exists()


def test_what_a_trial_rests_on_stays_and_is_not_looked_at_again_that_day(kept_long_ago):
    trials, kept = kept_long_ago
    drop_unused_sources(trials.root / "runs")
    assert kept.exists()
    assert time.time() - kept.stat().st_mtime < KEPT_S


def test_what_was_kept_of_late_stays_for_those_who_are_about_to_send_it(kept_long_ago):
    trials, kept = kept_long_ago
    keep_source(trials.root / "runs", trials.trial.trainer, trials.folder)
    shutil.rmtree(trials.directory.path)
    drop_unused_sources(trials.root / "runs")
    assert kept.exists()


def test_where_a_trial_cannot_be_read_everything_that_was_kept_stays(kept_long_ago):
    trials, kept = kept_long_ago
    trials.directory.trial_path.write_text("{")
    drop_unused_sources(trials.root / "runs")
    assert kept.exists()


def test_a_kept_file_that_was_damaged_is_not_run(lab):
    trials = lab()
    keep_source(trials.root / "runs", trials.trial.trainer, trials.folder)
    (copy,) = (trials.root / "runs" / KEPT).glob("*/train.py")
    copy.write_text("damaged")
    assert trials.run() == WorkerExit.ERROR
    assert str(copy) in trials.last()["error"]


def test_equal_content_is_kept_once(lab):
    trials = lab()
    for trainer in (
        trials.trial.trainer,
        replace(trials.trial.trainer, command=(sys.executable, "train.py")),
    ):
        keep_source(trials.root / "runs", trainer, trials.folder)
    assert len(list((trials.root / "runs" / KEPT).iterdir())) == 1


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


def test_files_that_do_not_lie_below_the_sweeps_folder_are_not_kept(lab):
    trials = lab()
    for path in (str(trials.script), "../lab/train.py"):
        trainer = replace(trials.trial.trainer, files=(replace(trials.trial.trainer.files[0], path=path),))
        keep_source(trials.root / "runs", trainer, trials.folder)
    assert not (trials.root / "runs" / KEPT).exists()
