"""What the tests of results share."""

from types import SimpleNamespace

import pytest

from scalevec.results.claims import ClaimObserver
from scalevec.results.run_directory import RunDirectory

TRIAL_ID = "ab12" * 16


@pytest.fixture
def run_directory(tmp_path) -> RunDirectory:
    """A trial that was created and nothing more."""
    directory = RunDirectory.of(tmp_path / "runs", TRIAL_ID)
    directory.create({"seed": 1}, {"name": "first"})
    return directory


@pytest.fixture
def clock() -> SimpleNamespace:
    """A monotonic clock, in ``seconds``, that only the test moves."""
    return SimpleNamespace(seconds=0.0)


@pytest.fixture
def observer(clock) -> ClaimObserver:
    """Sees how long counters of claims stand still by the ``clock``."""
    return ClaimObserver(clock=lambda: clock.seconds)
