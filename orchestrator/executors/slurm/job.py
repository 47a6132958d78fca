"""What a job of SLURM starts: ``python -P -m scalevec.orchestrator.executors.slurm.job FOLDER``.

FOLDER, of the private folder, holds what its jobs are to run (:mod:`payload`).
"""

import argparse
import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from scalevec.orchestrator.executors.slurm.job_script import STOPPED, Bundle, job_number
from scalevec.orchestrator.executors.slurm.payload import read_payload, task_number
from scalevec.results.opening import CorruptRecordError, open_log

LOG = "{job}.txt"
"""In the folder of records: what SLURM itself logs is in the private folder, where others cannot read it."""


def main(arguments: list[str] | None = None) -> int:
    """The entry point of each task of a job."""
    parser = argparse.ArgumentParser(prog="scalevec.orchestrator.executors.slurm.job", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    os.utime(folder)  # it is in use: private.drop_unused
    payload, position = read_payload(folder), int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))
    bundle = Bundle(Path(payload.records), folder, payload.jobs[position], payload.requeue, payload.at_a_time)
    signal.signal(signal.SIGUSR2, lambda _number, _frame: _near_the_limit(bundle))
    try:
        bundle()
    except Exception:
        with (
            suppress(OSError, CorruptRecordError),
            open_log(bundle.folder / LOG.format(job=job_number())) as log,
        ):
            log.write(traceback.format_exc().encode(errors="replace"))
        raise
    return 0


def _near_the_limit(bundle: Bundle) -> None:
    """Checkpoint, and ask SLURM to start this job again; the first task does so for all."""
    if not task_number():
        again = bundle.checkpoint() and _is_requeued()
        sys.exit(STOPPED if again else 1)


def _is_requeued() -> bool:
    """Ask SLURM to start this job again; whether it will."""
    return subprocess.run(("scontrol", "requeue", job_number()), check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
