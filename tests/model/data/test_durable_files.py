"""A directory is there whole or not at all, and one of another process is never replaced."""

import pytest

from scalevec.model.data.system import complete_directory


def make(final, content, **how):
    with complete_directory(final, **how) as partial:
        (partial / "file").write_text(content)


def test_a_directory_takes_its_name_when_it_is_complete(tmp_path):
    with complete_directory(tmp_path / "new") as partial:
        (partial / "file").write_text("whole")
        assert not (tmp_path / "new").exists()
    assert (tmp_path / "new/file").read_text() == "whole"


def test_an_error_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="stop"), complete_directory(tmp_path / "new"):
        raise ValueError("stop")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_another_process_stays_under_a_name_that_says_its_content(tmp_path):
    make(tmp_path / "digest", "first")
    make(tmp_path / "digest", "second")
    assert (tmp_path / "digest/file").read_text() == "first"
    assert len(list(tmp_path.iterdir())) == 1


def test_under_a_name_that_a_person_chose_the_second_is_told(tmp_path):
    make(tmp_path / "mine", "first", exclusive=True)
    with pytest.raises(FileExistsError, match="mine"):
        make(tmp_path / "mine", "second", exclusive=True)
    assert (tmp_path / "mine/file").read_text() == "first"
    assert len(list(tmp_path.iterdir())) == 1
