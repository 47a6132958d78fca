"""Finished trials are carried to another RUNS_DIR and found done there."""

import lzma
from pathlib import Path

import pytest
from finished_trials import ROWS, restore_finished, write_finished

from scalevec.results.claims import acquire
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory

RESULT = {"status": "completed", "loss": 3.25, "loss_validation": 3.5, "wall_s": 9.0}


def finished(runs_dir: Path, number: int = 1, n_rows: int = 100) -> RunDirectory:
    directory = RunDirectory.of(runs_dir, f"{number:064x}")
    directory.create({"seed": number, "tokens": 4096}, {"n_params": 25088})
    directory.append_event("running", attempt=1)
    directory.write_environment({"host": "a", "command": ["/a/b"], "cpu_model": "c", "versions": {}})
    for step in range(1, n_rows + 1):
        row = {"step": step, "tokens": 1024 * step, "loss": 1 / (3 * step), "gradient_norm": 1.5}
        directory.append_metrics({**row, "sv/final/mean": 1.25})
    directory.append_event("completed")
    directory.write_result({**RESULT, "loss": 3.25 + number})
    return directory


def carried(tmp_path: Path, *directories: RunDirectory) -> Path:
    """Another RUNS_DIR with these trials."""
    restore_finished_from(tmp_path, *directories)
    return tmp_path / "there"


def restore_finished_from(tmp_path: Path, *directories: RunDirectory) -> int:
    write_finished(tmp_path / "kept.jsonl.xz", directories)
    return restore_finished(tmp_path / "kept.jsonl.xz", tmp_path / "there")


def test_a_trial_is_done_there_with_its_result_and_fields(tmp_path: Path) -> None:
    here = finished(tmp_path / "here")
    there = RunDirectory.of(carried(tmp_path, here), here.trial_id)
    assert there.state().state == "completed"
    assert (there.result(), there.trial()) == (here.result(), here.trial())
    assert there.events()[-1]["time"] == here.events()[-1]["time"]


def test_curves_are_thinned_and_keep_their_ends(tmp_path: Path) -> None:
    here = finished(tmp_path / "here")
    rows = RunDirectory.of(carried(tmp_path, here), here.trial_id).metrics()
    assert (len(rows), rows[0]["step"], rows[-1]["step"]) == (ROWS, 1, 100)
    assert rows[-1] == {"step": 100, "tokens": 102400, "loss": 0.00333333, "sv/final/mean": 1.25}
    assert rows[0].keys() == {"step", "tokens", "loss"}


def test_names_of_a_machine_are_left_behind(tmp_path: Path) -> None:
    here = finished(tmp_path / "here")
    there = RunDirectory.of(carried(tmp_path, here), here.trial_id)
    assert there.environments() == [{"cpu_model": "c", "versions": {}}]


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    here = finished(tmp_path / "here")
    there = carried(tmp_path, here)
    other = finished(tmp_path / "here", number=2)
    write_finished(tmp_path / "both.jsonl.xz", [here, other])
    assert restore_finished(tmp_path / "both.jsonl.xz", there) == 1
    assert restore_finished(tmp_path / "both.jsonl.xz", there) == 0


def test_a_trial_that_has_begun_there_is_left_to_its_machine(tmp_path: Path) -> None:
    here = finished(tmp_path / "here")
    there = RunDirectory.of(tmp_path / "there", here.trial_id)
    there.create(here.trial()["semantic"], {})
    acquire(there, {})
    assert restore_finished_from(tmp_path, here) == 0
    assert there.result() is None


@pytest.mark.parametrize(
    "content", [b"text", lzma.compress(b"{"), lzma.compress(b"[]\n"), lzma.compress(b'{"trial_id": "x"}\n')]
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kept.xz").write_bytes(content)
    with pytest.raises(CorruptRecordError, match=r"kept\.xz"):
        restore_finished(tmp_path / "kept.xz", tmp_path / "there")
    assert not (tmp_path / "there").exists()
