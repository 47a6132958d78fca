"""A trial on several machines of one SLURM job: a task on each, the first of which leads."""

import os
from dataclasses import dataclass
from pathlib import Path

from scalevec.orchestrator.attempts.jobs import on_machine
from scalevec.results.files import write_json


def task_number() -> int:
    """Which of the job's tasks this is; there is one on each machine."""
    return int(os.environ.get("SLURM_PROCID", "0"))


@dataclass(frozen=True)
class MachinesMeeting:
    """How the tasks of one start of a job meet: by the file ``path``, which the first one writes."""

    path: Path
    nodes: int

    def command(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """What this machine's task runs of the worker's ``command``."""
        return command if self.nodes == 1 else on_machine(command, task_number(), self.nodes, self.path)

    def call_off(self) -> None:
        """The first machine trains nothing (any more): tell those that still wait for its word."""
        if self.nodes > 1 and not self.path.exists():
            self.path.parent.mkdir(exist_ok=True)
            write_json(self.path, {"called_off": True})
