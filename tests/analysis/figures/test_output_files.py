"""Files that the analysis writes."""

import os

import pytest

from scalevec.analysis import write_figures
from scalevec.analysis.figures.files import write_atomically


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


def test_a_full_disk_is_told_with_the_file_that_had_no_room(small_device):
    with pytest.raises(OSError, match=r"No space left on device: .*/a\.svg"):
        write_atomically(small_device / "a.svg", bytes(100_000))
    assert list(small_device.iterdir()) == []


def test_settings_of_matplotlib_in_the_working_directory_change_no_byte(tmp_path, sweep, monkeypatch):
    import matplotlib

    table = sweep({"baseline": 0.0, "none": 0.1})

    def drawn(folder: str) -> dict[str, bytes]:
        write_figures(
            table, tmp_path / folder, reference="baseline", formats=["svg"], only=["loss"], bootstrap=20
        )
        return {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}

    usual = drawn("usual")
    odd = {
        "text.usetex": True,
        "lines.linewidth": 9,
        "svg.fonttype": "none",
        "axes.formatter.use_locale": True,
    }
    with matplotlib.rc_context(odd):
        assert drawn("odd") == usual
