"""What an executor and the scheduler add to running the same command by the bare library.

``python benchmarks/overhead.py [--executors local ray slurm] [--rounds R] [--trials N] [--json FILE]`` prints
a Markdown table. In each round every executor and its peer take turns, with one job alone (how long until
its first line, and until its first training step) and with N trials whose process only writes a result (this
process's own time for each). The peers run the command by ``subprocess``, in a task of Ray, and in a job
array of submitit, the cluster's SLURM being the one whose commands are on the PATH.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from scalevec.model.config import ModelConfig, OptimizerConfig, RunOptions, ScheduleConfig, Shape, Trial
from scalevec.model.identity import trial_id
from scalevec.orchestrator.attempts.jobs import Job, Task
from scalevec.orchestrator.executors.base import Executor, Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.scheduling.scheduler import Scheduler

Command = tuple[str, ...]
Peer = Callable[[Sequence[Command]], None]

SLOTS = 2
TITLES = {
    "first_line": "submit to first line",
    "first_step": "submit to first step",
    "process": "process time per trial",
    "clock": "clock per trial",
}
PROFILES = {"slurm": Profile(poll_s=0.5, memory_gb=0.5, time=5)}
PROGRAM = """
import os, sys, time
folder = sys.argv[1]
with open(folder + "/first", "w") as file:
    file.write(str(time.time()))
with open(folder + "/result.json.part", "w") as file:
    file.write('{"status": "completed", "loss": 1.0, "loss_validation": 1.0}')
os.link(folder + "/result.json.part", folder + "/result.json")
"""
TRIAL = Trial(
    model=ModelConfig(Shape(32, 2, heads=2, kv_heads=2, feed_forward=88), vocabulary_size=1024),
    optimizer=OptimizerConfig(learning_rate=0.016),
    schedule=ScheduleConfig(warmup_tokens=1024),
    corpus="of this benchmark",
    sequence_length=128,
    batch_tokens=1024,
    tokens=102_400,
    seed=0,
)


@dataclass(frozen=True)
class Figures:
    """Seconds from submit to a job's first line and first step, of this process and of the clock a trial."""

    first_line: float
    first_step: float
    process: float
    clock: float


def command_in(folder: Path) -> Command:
    """The command of one trial; ``folder`` is its run directory."""
    return (sys.executable, "-S", "-E", "-c", PROGRAM, str(folder))


def step_in(folder: Path) -> Command:
    """The command of a job that trains one step."""
    return (sys.executable, str(Path(__file__).with_name("first_step.py")), str(folder))


class Quiet(Progress):
    """Says nothing."""

    def message(self, text: str) -> None:
        """Not said."""


class Ours:
    """An executor, and the scheduler on it, in ``folder``."""

    def __init__(self, name: str, folder: Path) -> None:
        self.runs_dir = folder / "runs"
        site = Site(self.runs_dir, "overhead", SLOTS, PROFILES.get(name, Profile()))
        self.executor: Executor = EXECUTORS[name].build(site)
        self._seeds = count()

    def first(self, command: Command, folder: Path) -> float:
        """Seconds until the job ``command``, in ``folder``, writes."""
        began = time.time()
        self.executor.submit([Job("0" * 64, command, folder, "first")])
        while not self.executor.wait(0.2):
            pass
        return written(folder) - began

    def run(self, trials: int) -> None:
        """Take as many new trials through the scheduler."""
        built = [replace(TRIAL, seed=next(self._seeds)) for _ in range(trials)]
        tasks = [Task(trial_id(trial), trial, str(trial.seed), RunOptions(), 1.0) for trial in built]
        scheduler = Scheduler(self.runs_dir, self.executor, Quiet(SLOTS))
        with patch("scalevec.orchestrator.attempts.jobs.worker_command", self._worker):
            outcome = scheduler.run(tasks)
        if outcome.failed:
            raise RuntimeError(f"{len(outcome.failed)} trials failed: {next(iter(outcome.failed.values()))}")

    def _worker(self, runs_dir: Path, name: str, *_: object) -> Command:
        return command_in(runs_dir.resolve() / "trials" / name[:2] / name)


def by_subprocess(commands: Sequence[Command]) -> None:
    """The peer of ``local``."""
    with ThreadPoolExecutor(SLOTS) as pool:
        all_ended_well(pool.map(subprocess.call, commands))


def by_ray(commands: Sequence[Command]) -> None:
    """The peer of ``ray``, on the cluster that the executor is connected to."""
    import ray

    task = ray.remote(subprocess.call)
    all_ended_well(ray.get([task.remote(command) for command in commands]))


def by_submitit(commands: Sequence[Command]) -> None:
    """The peer of ``slurm``: one array."""
    import submitit

    folder = tempfile.mkdtemp(prefix="submitit-", dir=Path.cwd())
    executor = submitit.AutoExecutor(folder, cluster="slurm")
    executor.update_parameters(timeout_min=5, mem_gb=0.5, cpus_per_task=1)
    all_ended_well([job.result() for job in executor.map_array(subprocess.call, commands)])
    shutil.rmtree(folder)


def all_ended_well(codes: Any) -> None:
    """Raise ``RuntimeError`` where a command of a peer failed."""
    if any(codes):
        raise RuntimeError("a command of the peer failed")


PEERS: dict[str, Peer] = {"local": by_subprocess, "ray": by_ray, "slurm": by_submitit}


def written(folder: Path) -> float:
    """When the job in ``folder`` wrote its first line, by the same clock as ours."""
    return float((folder / "first").read_text())


def timed(run: Callable[[], None], trials: int) -> tuple[float, float]:
    """Seconds of this process, and of the clock, for each trial."""
    clock, cpu = time.monotonic(), time.process_time()
    run()
    return (time.process_time() - cpu) / trials, (time.monotonic() - clock) / trials


def figures_of_ours(ours: Ours, folder: Path, trials: int) -> Figures:
    """One round of an executor."""
    line, step = new_folders(folder, 2)
    firsts = ours.first(command_in(line), line), ours.first(step_in(step), step)
    return Figures(*firsts, *timed(lambda: ours.run(trials), trials))


def figures_of_peer(peer: Peer, folder: Path, trials: int) -> Figures:
    """One round of its peer."""
    line, step = new_folders(folder, 2)
    firsts = first_of_peer(peer, command_in(line), line), first_of_peer(peer, step_in(step), step)
    commands = [command_in(new_folder) for new_folder in new_folders(folder, trials)]
    return Figures(*firsts, *timed(lambda: peer(commands), trials))


def first_of_peer(peer: Peer, command: Command, folder: Path) -> float:
    """Seconds until ``command``, in ``folder``, writes."""
    began = time.time()
    peer([command])
    return written(folder) - began


def new_folders(folder: Path, number: int) -> list[Path]:
    """As many empty folders in ``folder``."""
    return [Path(tempfile.mkdtemp(dir=folder)) for _ in range(number)]


def measure(names: Sequence[str], rounds: int, trials: int, folder: Path) -> dict[str, Any]:
    """Medians over ``rounds``; the first, in which everything is started, is not counted."""
    ours = {name: Ours(name, new_folders(folder, 1)[0]) for name in names}
    figures_by_name: dict[str, list[tuple[Figures, Figures]]] = {name: [] for name in names}
    try:
        for _ in range(rounds + 1):
            for name in names:
                of_ours = figures_of_ours(ours[name], folder, trials)
                figures_by_name[name].append((of_ours, figures_of_peer(PEERS[name], folder, trials)))
    finally:
        for item in ours.values():
            item.executor.close()
    return {name: summary(pairs[1:]) for name, pairs in figures_by_name.items()}


def summary(pairs: Sequence[tuple[Figures, Figures]]) -> dict[str, dict[str, float]]:
    """For each figure the medians of ours, of the peer's, and of their ratio within a round."""
    summary_of = {}
    for name in TITLES:
        values = [(getattr(ours, name), getattr(peer, name)) for ours, peer in pairs]
        ours, bare = zip(*values, strict=True)
        ratio = statistics.median(item / other for item, other in values)
        summary_of[name] = {"ours": statistics.median(ours), "bare": statistics.median(bare), "ratio": ratio}
    return summary_of


def table(measured: dict[str, Any]) -> str:
    """Milliseconds and ratios."""
    head = " | ".join(f"{title}: ours, bare (ms) | ratio" for title in TITLES.values())
    lines = [f"| executor | {head} |", "|---" * (1 + 2 * len(TITLES)) + "|"]
    for name, figures in measured.items():
        cells = [
            f"{1e3 * item['ours']:.3g}, {1e3 * item['bare']:.3g} | {item['ratio']:.2f}"
            for item in (figures[key] for key in TITLES)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def available() -> list[str]:
    """The executors that can run here."""
    executors = ["local", "ray"] if find_spec("ray") else ["local"]
    has_slurm = shutil.which("sbatch") and subprocess.run(["sinfo"], capture_output=True).returncode == 0
    return [*executors, "slurm"] if has_slurm and find_spec("submitit") else executors


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--executors", nargs="+", choices=sorted(PEERS), default=available())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the figures there, in seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="overhead-", dir=Path.cwd()) as folder:
        measured = measure(options.executors, options.rounds, options.trials, Path(folder))
    print(table(measured))
    if options.json is not None:
        what = {"rounds": options.rounds, "trials": options.trials, "slots": SLOTS, "seconds": measured}
        options.json.write_text(json.dumps(what, indent=1) + "\n")


if __name__ == "__main__":
    main()
