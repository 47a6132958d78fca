"""What the tests of results share."""

import pytest

from scalevec.results.run_directory import RunDirectory

TRIAL_ID = "ab12" * 16


@pytest.fixture
def run_directory(tmp_path) -> RunDirectory:
    """A trial that was created and nothing more."""
    directory = RunDirectory.of(tmp_path / "runs", TRIAL_ID)
    directory.create({"seed": 1}, {"name": "first"})
    return directory
