"""What a Ray task does on its node: runs the command of one job, and passes a request to stop on to it."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import ray

from scalevec.orchestrator.attempts.jobs import stop_signals_to
from scalevec.orchestrator.executors.forked_workers import start_bound
from scalevec.orchestrator.private import name_of_user

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ray cancels a task with the first; ``ray stop`` sends the second to every worker."""
POLL_S = 0.1
ADDRESS = "MASTER_ADDR"


def run_command(command: Sequence[str], log: Path, where: Path, cpus: int, user: int) -> int:
    """Run ``command`` to its end with its output appended to ``log``; returns its exit code.

    Raises ``PermissionError`` where Ray runs this task as somebody else than ``user``, the number of the
    driver's: the command lies in a folder that is that one's alone.
    ``where`` is told the id of the node first, for a driver that sees nothing of this task but its death.
    The command's process lives no longer than this one: the kernel kills it, so that a worker of Ray that was
    killed leaves nobody behind who writes into the run directory.
    """
    if os.geteuid() != user:
        raise PermissionError(
            f"the Ray cluster runs tasks as {name_of_user(os.geteuid())}, and you are {name_of_user(user)}; "
            "use a cluster that you have started (ray start --head)"
        )
    _tell(where, ray.get_runtime_context().get_node_id())
    # By which the processes of a trial on other machines reach this one.
    os.environ[ADDRESS] = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    requests: list[int] = []
    # In place of ending at the first: the command is to write its checkpoint.
    with stop_signals_to(lambda: requests.append(1), STOP_SIGNALS):
        return _watch(start_bound(command, log, cpus, new_session=True), requests)


def _tell(where: Path, node_id: str) -> None:
    """Write ``node_id`` to ``where``, whole or not at all."""
    # Renamed, not synced: it need not outlive a loss of power, so nothing waits for the disk.
    part = where.with_suffix(".part")
    part.write_text(node_id)
    part.replace(where)


def _watch(process: "subprocess.Popen[bytes]", requests: list[int]) -> int:
    passed_on = 0
    while True:
        if len(requests) > passed_on:
            passed_on = len(requests)
            process.terminate()
        try:
            return process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            continue
