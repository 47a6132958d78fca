"""The private folder: what lies there nobody else can change, or nothing runs from it."""

import os
import subprocess
from pathlib import Path

import pytest

from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.private import private_folder, shell_check, who_may_change
from support import umask


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder of this user's in one of theirs."""
    (tmp_path / "home").mkdir(mode=0o755)
    (tmp_path / "home" / "private").mkdir(mode=0o700)
    return tmp_path / "home" / "private"


def checked_by_the_shell(*folders: Path) -> "subprocess.CompletedProcess[str]":
    command = ["bash", "-c", f"{shell_check(folders)}\necho went on"]
    return subprocess.run(command, capture_output=True, text=True)


def test_it_is_made_where_the_profile_names_it_for_this_user_alone(tmp_path):
    folder = private_folder(str(tmp_path / "a" / "b"))
    assert folder == tmp_path / "a" / "b"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_is_absent_above_it_is_made_for_this_user_alone_under_the_umask_of_a_group(tmp_path):
    with umask(0o002):
        folder = private_folder(str(tmp_path / "a" / "b"))
    assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent)} == {0o700}


def test_without_a_profile_the_environment_names_it_and_else_it_is_in_the_home(tmp_path, monkeypatch):
    assert private_folder() == Path(os.environ["SCALEVEC_PRIVATE_DIR"]).resolve()
    monkeypatch.delenv("SCALEVEC_PRIVATE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert private_folder() == tmp_path / ".scalevec"


def test_its_own_folders_and_roots_are_safe(folder):
    assert who_may_change(folder) is None
    assert checked_by_the_shell(folder).stdout == "went on\n"


def others_write(folder: Path) -> Path:
    folder.chmod(0o770)
    return folder


def others_write_above(folder: Path) -> Path:
    folder.parent.chmod(0o775)
    return folder.parent


def it_is_anothers(folder: Path) -> Path:
    os.chown(folder, 65534, -1)
    return folder


def it_lies_in_anothers(folder: Path) -> Path:
    os.chown(folder.parent, 65534, -1)
    return folder.parent


CHANGES = [others_write, others_write_above, it_is_anothers, it_lies_in_anothers]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_folder_that_others_could_change_is_refused_with_the_remedy(folder, change):
    if "another" in change.__name__ and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    weak = change(folder)
    with pytest.raises(MissingRequirementError, match=f"{weak}.*(chmod go-w|choose a folder)"):
        private_folder(str(folder))
    done = checked_by_the_shell(folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"it is gone: {weak}; to repair it: chmod go-w {weak}\n" in done.stderr


def test_above_it_a_sticky_bit_is_as_good_as_nobody_elses_right_to_write(folder):
    folder.parent.chmod(0o1777)
    assert who_may_change(folder) is None
    assert checked_by_the_shell(folder).stdout == "went on\n"


def test_a_job_runs_nothing_where_a_folder_is_gone_or_a_link_stands_in_its_place(folder, tmp_path):
    folder.rename(tmp_path / "elsewhere")
    assert checked_by_the_shell(folder).returncode == 3
    folder.symlink_to(tmp_path / "elsewhere")
    done = checked_by_the_shell(folder)
    assert (done.returncode, done.stdout) == (3, "")


def test_a_path_through_links_is_followed_once_and_for_all(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert private_folder(str(tmp_path / "link")) == folder


def test_it_may_not_lie_in_the_runs_folder(tmp_path):
    with pytest.raises(MissingRequirementError, match="lies in the runs folder"):
        private_folder(str(tmp_path / "runs" / "private"), tmp_path / "runs")


def test_a_home_that_cannot_be_written_is_answered_with_what_to_set(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MissingRequirementError, match="private_dir in the profile, or SCALEVEC_PRIVATE_DIR"):
        private_folder(str(tmp_path / "file" / "private"))
