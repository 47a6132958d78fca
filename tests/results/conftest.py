"""What the tests of results share."""

import subprocess

import pytest

from results.run_directory import RunDirectory

TRIAL_ID = "ab12" * 16


@pytest.fixture
def run_directory(tmp_path) -> RunDirectory:
    """A trial that was created and nothing more."""
    made = RunDirectory.of(tmp_path / "runs", TRIAL_ID)
    made.create({"seed": 1}, {"name": "first"})
    return made


@pytest.fixture
def small_device(tmp_path):
    """A folder on a device of its own with 64 KiB, where this system lets us mount one."""
    folder = tmp_path / "device"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs the right to mount a tmpfs: {error}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
