"""Jobs of the kinds that the executors' contract speaks of, as real processes."""

import sys
from pathlib import Path

import psutil

from scalevec.orchestrator.attempts.jobs import Job, ResourceRequest
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.registry import EXECUTORS
from support import wait_until

FOREVER = "ready.touch()\nwhile True:\n    time.sleep(0.05)"
KINDS = {
    "completes": "print('hello')",
    "crashes": "sys.exit(3)",
    "dies": "os.kill(os.getpid(), 9)",
    "listens": "def stop(*_):\n    heard.touch()\n    os._exit(75)\nsignal.signal(signal.SIGTERM, stop)\n"
    + FOREVER,
    "deaf": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FOREVER,
}
START = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
ready, heard = folder / "ready", folder / "heard"
(folder / "pid").write_text(str(os.getpid()))
"""


class ProcessBench:
    """Makes executors of one name and jobs for them in ``folder``."""

    outlives_its_scheduler = True
    crash_code = 3

    def __init__(self, name: str, folder: Path, profile: Profile | None = None) -> None:
        self.name, self.folder, self.profile = name, folder, profile or Profile()
        self._made: list = []
        self._jobs = 0

    def executor(self, slots: int):
        site = Site(self.folder / "runs", "contract", slots, self.profile)
        self._made.append(EXECUTORS[self.name].build(site))
        return self._made[-1]

    def job(self, kind: str, rung: str = "", request: ResourceRequest = ResourceRequest(), **fields) -> Job:  # noqa: B008 (frozen)
        """A job that asks for what the profile makes of ``request``, as a sweep's trials do."""
        self._jobs += 1
        request = self.profile.request(rung, request)
        trial_id = f"{self._jobs:064x}"
        directory = self.folder / "runs" / "trials" / trial_id[:2] / trial_id
        directory.mkdir(parents=True)
        command = (sys.executable, "-c", START + KINDS.get(kind, kind), str(directory))
        return Job(trial_id, command, directory, label=kind, rung=rung, request=request, **fields)

    def wait_until_it_runs(self, job: Job, executor) -> None:
        wait_until(lambda: (executor.wait(0.0), (job.directory / "ready").exists())[1])

    def wait_until_it_is_gone(self, job: Job) -> None:
        wait_until(lambda: not self.is_running(job))

    def heard(self, job: Job) -> bool:
        return (job.directory / "heard").exists()

    def is_running(self, job: Job) -> bool:
        try:
            process = psutil.Process(int((job.directory / "pid").read_text()))
            return process.status() != psutil.STATUS_ZOMBIE and str(job.directory) in process.cmdline()
        except (psutil.NoSuchProcess, FileNotFoundError):
            return False

    def kill_the_scheduler(self, executor) -> None:
        """The executor is not used any more, as after a kill -9 of its process."""
        self._made.remove(executor)

    def close(self) -> None:
        for executor in self._made:
            executor.stop(hard=True)
            executor.close()


def log_of(job: Job) -> str:
    return job.log.read_text()


__all__ = ["ProcessBench", "log_of"]
