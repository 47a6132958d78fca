"""What the controller's job runs: ``scalevec run`` that no person began, and that waits out what passes.

``python -P -m scalevec.orchestrator.commands.run.controller_job --runs RUNS_DIR --executor NAME SWEEP``
"""

import argparse
import sys
import time
from pathlib import Path

from scalevec.orchestrator.attempts.retry_policy import PASSING_ERRORS
from scalevec.orchestrator.cli.options import Placement
from scalevec.orchestrator.cli.output import command
from scalevec.orchestrator.commands.run.run import run_sweep
from scalevec.orchestrator.errors import NO_SPACE, Exit, TryLaterError, explain, report
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.scheduling.watched_jobs import Backoff
from scalevec.orchestrator.sources.sources import sweep_folder
from scalevec.orchestrator.sweep import controller
from scalevec.orchestrator.trust import NO_TRUST, Trust

PASSING = (*NO_SPACE, *PASSING_ERRORS)
"""A full disk passes too."""


def run_patiently(
    source: str, runs_dir: Path, placement: Placement, again: str, trust: Trust = NO_TRUST
) -> Exit:
    """Run the sweep to its end, over and over where something stands in the way that passes.

    A sweep that was cancelled is left alone: only a person's command brings it back.
    """
    backoff = Backoff(note)
    folder = sweep_folder(source, runs_dir)
    while True:
        if folder.is_called_off():
            note(f"sweep {folder.name} was cancelled; nothing is sent. To run it again: {again}")
            return Exit.SOME_FAILED
        try:
            run = run_sweep(source, runs_dir, placement, again=again, interactive=False, trust=trust)
            return run.write()
        except (TryLaterError, OSError) as problem:
            if isinstance(problem, OSError) and problem.errno not in PASSING:
                raise
            backoff.failed(explain(problem)[0])
        time.sleep(backoff.left_s)


def main(arguments: list[str] | None = None) -> int:
    """The entry point of the job; it keeps how it ended, for ``scalevec status``."""
    parser = argparse.ArgumentParser(
        prog="scalevec.orchestrator.commands.run.controller_job", description=__doc__
    )
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--executor", required=True)
    parser.add_argument("--profile")
    parser.add_argument("--trusted", action="append", default=[], help="digest of code that was agreed to")
    parser.add_argument("source")
    values = parser.parse_args(arguments)
    again = command("submit", values.source, values.runs, profile=values.profile)
    try:
        placement, trust = Placement(values.executor, values.profile), Trust(sent=tuple(values.trusted))
        code = run_patiently(values.source, values.runs, placement, again, trust)
        words = ""
    except Exception as error:  # noqa: BLE001 (the last place where a person can be told)
        words, code = explain(error)
        report(error)
    if code is not Exit.INTERRUPTED:  # its queue starts it again
        controller.note_end(values.runs, sweep_folder(values.source, values.runs).name, code, words)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
