"""A failed trial says why: the last line of its log, and where the log is."""

import pytest

from scalevec.orchestrator.attempts.retry_policy import failure_text
from scalevec.results.run_directory import RunDirectory

LAST = "ConfigurationError: schedule is 'wave'"


@pytest.mark.parametrize(
    ("log", "reason", "why"),
    [
        (
            f"Traceback ...\n{LAST}\n\n",
            "3 attempts without a new checkpoint",
            f"3 attempts without a new checkpoint: {LAST}",
        ),
        (f"{LAST}\n", f"the same error twice: {LAST}", f"the same error twice: {LAST}"),
        (None, "killed", "killed"),
    ],
)
def test_the_last_line_of_the_log_is_told_once(tmp_path, log, reason, why):
    directory = RunDirectory(tmp_path)
    if log is not None:
        directory.log_path.write_text(log)
    assert failure_text("light a", reason, directory) == f"light a: {why}; see {directory.log_path}"
