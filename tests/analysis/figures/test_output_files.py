"""Files that the analysis writes."""

import os

import pytest

from scalevec.analysis.figures.files import write_atomically
from scalevec.analysis.figures.style import PAGE


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o077, 0o600)])
def test_a_file_is_for_whom_the_umask_says(tmp_path, umask, mode):
    usual = os.umask(umask)
    try:
        write_atomically(tmp_path / "a.svg", b"content")
    finally:
        os.umask(usual)
    assert (tmp_path / "a.svg").stat().st_mode & 0o777 == mode


def test_what_cannot_be_put_in_place_leaves_nothing_behind(tmp_path):
    (tmp_path / "a.svg").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "a.svg", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]


def test_a_matplotlibrc_changes_no_figure():
    import matplotlib as mpl

    with mpl.rc_context({"text.usetex": True, "font.size": 40}), PAGE.style():
        assert not mpl.rcParams["text.usetex"]
        changed = mpl.rcParams["font.size"]
    with PAGE.style():
        assert mpl.rcParams["font.size"] == changed
