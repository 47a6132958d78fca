"""The folder of a sweep: its names, and what it gives back."""

import pytest

from scalevec.results.files import CorruptRecordError
from scalevec.results.sweep_folder import SweepFolder, sweep_names


def test_what_is_written_is_read_back(tmp_path):
    folder = SweepFolder.of(tmp_path, "quick-start_1.0")
    folder.write_sweep(b"name: x # as given\r\n", tmp_path)
    assert folder.origin() == tmp_path
    folder.write_resolved({"name": "x"})
    folder.write_members([{"trial_id": "a"}])
    folder.write_tuning({"version": 1, "choices": []})
    assert folder.sweep() == b"name: x # as given\r\n"
    assert folder.resolved() == {"name": "x"}
    assert folder.members() == [{"trial_id": "a"}]
    assert folder.tuning() == {"version": 1, "choices": []}
    assert sweep_names(tmp_path) == ["quick-start_1.0"]


def test_verdicts_are_added_to_those_that_were_given(tmp_path):
    folder = SweepFolder.of(tmp_path, "s")
    assert folder.verdicts() == folder.dropped() == []
    folder.add_verdicts([{"arm": "a"}])
    folder.add_verdicts([{"arm": "b"}])
    assert [verdict["arm"] for verdict in folder.verdicts()] == ["a", "b"]


def test_looking_creates_nothing(tmp_path):
    folder = SweepFolder.of(tmp_path, "new")
    assert folder.sweep() is folder.resolved() is folder.members() is folder.tuning() is None
    assert sweep_names(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "a b", "$(id)", ".hidden", "-x", "a\n", "a" * 101]
)
def test_a_name_that_could_leave_its_folder_or_reach_a_shell_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="sweep name"):
        SweepFolder.of(tmp_path, name)


def test_truncated_members_are_corrupt_and_named(tmp_path):
    folder = SweepFolder.of(tmp_path, "s")
    folder.write_members([{"trial_id": "a"}])
    folder.members_path.write_bytes(folder.members_path.read_bytes()[:9])
    with pytest.raises(CorruptRecordError, match=r"members\.json: is not whole JSON"):
        folder.members()
