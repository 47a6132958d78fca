"""What ``submit.sh`` of a run directory runs: one trial in a job that a person sent with ``sbatch``.

``python -m scalevec.orchestrator.executors.slurm.by_hand --folder FOLDER --job TOKEN DIRECTORY -- COMMAND``

The job registers itself when it starts, so that a scheduler finds it as it finds its own jobs.
"""

import argparse
import hashlib
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from scalevec.orchestrator.attempts.jobs import PYTHON_MODULE, Job, WorkerExit
from scalevec.orchestrator.executors.slurm.job_script import Bundle, Entry, job_number
from scalevec.orchestrator.executors.slurm.several_machines import task_number
from scalevec.orchestrator.snapshots.snapshot import Snapshot
from scalevec.results.files import CorruptRecordError, read_json, write_json
from scalevec.results.run_directory import RunDirectory

PLACES = "places.json"
SCRIPT = "submit.sh"
_DROPPED = re.compile(r"#SBATCH --(array|dependency|kill-on-invalid-dep)\b|export SUBMITIT_")


def script_of(
    job: Job, sent: str, folder: Path, name: str, code: Snapshot, *, requeue: bool, dependency: str | None
) -> str:
    """Return a script that runs one trial of the array that the script ``sent`` runs.

    Args:
        job: The trial's job.
        sent: What was sent to SLURM.
        folder: Where the job keeps its records; it is made when the job starts.
        name: What the job is called; it ends with the name of ``folder``.
        code: What the job runs from.
        requeue: Whether SLURM starts the job again after its time limit.
        dependency: What the person wants to have happened before.
    """
    log = shlex.quote(f"{job.directory.resolve()}/log.txt")
    replaced = {"job-name": shlex.quote(name), "output": log, "error": log}
    lines = ["#!/bin/bash", f"# {job.label or job.trial_id}: to run it by hand, sbatch this file."]
    lines += [f"#SBATCH --dependency={dependency}"] if dependency else []
    for line in sent.splitlines()[1:]:
        option = re.match(r"#SBATCH --([a-z-]+)=", line)
        if line.startswith("srun "):
            lines += [_require(code), _command(job, folder, code, requeue=requeue)]
        elif option and option[1] in replaced:
            lines.append(f"#SBATCH --{option[1]}={replaced[option[1]]}")
        elif not _DROPPED.match(line):
            lines.append(line)
    return "\n".join(lines) + "\n"


def _require(code: Snapshot) -> str:
    """A line that ends the job where its snapshot was removed: only those of open jobs are kept for good."""
    gone = f"scalevec: {code.root} was removed; scalevec run takes a new snapshot and sends the trial again"
    there, why = shlex.quote(code.start), shlex.quote(gone)
    return f"[ -e {there} ] || {{ echo {why}; exit {WorkerExit.FOREIGN_CODE}; }}"


def _command(job: Job, folder: Path, code: Snapshot, *, requeue: bool) -> str:
    options = ["--folder", str(folder), "--job", job.token, "--cpus", str(job.request.cpus)]
    if job.request.nodes > 1:
        options += ["--nodes", str(job.request.nodes)]
    if not requeue:
        options.append("--no-requeue")
    module = (*PYTHON_MODULE, "scalevec.orchestrator.executors.slurm.by_hand")
    srun = ("srun", "--unbuffered", f"--cpus-per-task={job.request.cpus_of_node}")
    words = (*options, str(job.directory.resolve()), "--", *code.command(job.command))
    return shlex.join((*srun, *code.command(module), *words))


def main(arguments: list[str] | None = None) -> int:
    """The entry point of the job."""
    parser = argparse.ArgumentParser(
        prog="scalevec.orchestrator.executors.slurm.by_hand", description=__doc__
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--job", default="")
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--no-requeue", action="store_true")
    parser.add_argument("directory", type=Path)
    parser.add_argument("command", nargs="+")
    values = parser.parse_args(arguments)
    directory = RunDirectory(values.directory)
    if directory.result() is not None:
        print(f"{directory.path} has its result already; nothing to do", flush=True)
        return 0
    # Its own, the same after each restart: a claim of the job that was sent first is not this one's.
    token = hashlib.sha256(f"{values.folder.name} {job_number()}".encode()).hexdigest()[:16]
    if not task_number():
        register(values.folder, directory, token)
    command = tuple(token if values.job and word == values.job else word for word in values.command)
    entry = Entry(directory.trial_id, command, str(directory.path), token, values.cpus, nodes=values.nodes)
    _run(Bundle(str(values.folder), (entry,), not values.no_requeue), directory.path / SCRIPT)
    return 0


def register(folder: Path, directory: RunDirectory, token: str) -> None:
    """Let schedulers find this job; what SLURM started again is registered already."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        jobs = dict(read_json(folder / PLACES, dict)["jobs"])
    except (FileNotFoundError, CorruptRecordError, KeyError):
        jobs = {}
    if job_number() in jobs:
        return
    write_json(folder / PLACES, {"jobs": {**jobs, job_number(): [str(directory.path)]}})
    directory.append_event("queued", executor="slurm", job=token, note="sent by hand")
    directory.write_job("slurm", f"{job_number()}/0@{folder.name}", token)


def _run(bundle: Bundle, again: Path) -> None:
    """Run the trial; near its time limit the job asks SLURM to start it again, or says who has to."""

    def near_the_limit(_number: int, _frame: FrameType | None) -> None:
        ends = bundle.checkpoint() is None or not _is_requeued()
        if ends and not task_number():
            to_go_on = shlex.join(("sbatch", str(again)))
            print(f"scalevec: the time limit is near, and the job ends; to go on: {to_go_on}", flush=True)
        sys.exit(1)

    signal.signal(signal.SIGUSR2, near_the_limit)
    bundle()


def _is_requeued() -> bool:
    """Ask SLURM to start this job again; whether it will."""
    try:
        return subprocess.run(("scontrol", "requeue", job_number()), check=False).returncode == 0
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
