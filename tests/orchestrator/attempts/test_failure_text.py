"""A failed trial says why: the last line of its log, and where the log is."""

import pytest

from scalevec.orchestrator.attempts.retry_policy import failure_text
from scalevec.results.run_directory import RunDirectory


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    directory = RunDirectory(tmp_path / "t")
    directory.path.mkdir()
    directory.log_path.write_text("Traceback ...\nConfigurationError: schedule is 'wave'\n\n")
    return directory


def test_the_last_line_of_the_log_is_the_cause(directory):
    assert failure_text("light a", "3 attempts without a new checkpoint", directory) == (
        "light a: 3 attempts without a new checkpoint: ConfigurationError: schedule is 'wave'; "
        f"see {directory.log_path}"
    )


def test_it_is_not_said_twice(directory):
    reason = "the same error twice: ConfigurationError: schedule is 'wave'"
    assert failure_text("light a", reason, directory) == f"light a: {reason}; see {directory.log_path}"


def test_without_a_log_the_reason_stands_alone(tmp_path):
    directory = RunDirectory(tmp_path / "none")
    assert failure_text("light a", "killed", directory) == f"light a: killed; see {directory.log_path}"
