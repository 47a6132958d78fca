"""``scalevec retry``: failed trials get a clean slate."""

from scalevec.orchestrator.cli.options import RUNS, Runs, Sweep
from scalevec.orchestrator.cli.output import Result, command
from scalevec.orchestrator.progress import counted
from scalevec.orchestrator.sources.sources import exit_after, recorded_states
from scalevec.results.trial_state import RETRY


def retry(source: Sweep, runs_dir: Runs = RUNS) -> Result:
    """Let the failed trials of a sweep run again; the next run trains them."""
    states = recorded_states(source, runs_dir)
    failed = [directory for directory, state in states if state == "failed"]
    for directory in failed:
        directory.append_event("pending", cause=RETRY)
    again = command("run", source, runs_dir)
    record = {"retried": [directory.trial_id for directory in failed], "next": again}
    text = f"{counted(len(failed), 'failed trial')} will run again. Next: {again}"
    return Result(record, text, exit_after(states))
