"""What an executor and the scheduler add to running the same by the bare library.

``python benchmarks/overhead.py [--executors local ray slurm] [--rounds R] [--trials N] [--json FILE]`` prints
a Markdown table. In each round every executor and its peer take turns, twice: with one trial (how long until
its first training step: by the real worker, with the executor's default settings, after the check of a kept
snapshot) and with N trials whose process only writes a result (this process's own time, and the clock, for
each). The peers run a command by ``subprocess``, in a task of Ray, and in job arrays of submitit,
the cluster's SLURM being the one whose commands are on the PATH. They keep no record, claim nothing, find no
trial done before, and start none again: so figures of many trials compare unlike work.
"""

import argparse
import json
import os
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

from scalevec.model.config import ModelConfig, OptimizerConfig, RunOptions, ScheduleConfig, Shape
from scalevec.model.identity import semantic_fields, trial_id
from scalevec.orchestrator.attempts.jobs import Task
from scalevec.orchestrator.executors.base import Executor, Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.scheduling.scheduler import Scheduler
from scalevec.orchestrator.sources.sources import load_sweep
from scalevec.orchestrator.sweep.corpus_of_sweep import prepared_facts
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import OwnTrial

Command = tuple[str, ...]
Peer = Callable[[Sequence[Command]], None]

SLOTS = 2
TITLES = {
    "first_step": "submit to first training step",
    "process": "process time per trial",
    "clock": "clock per trial",
}
PROFILES = {"slurm": Profile(memory_gb=1, time=5)}
LARGEST_ARRAY = 100
SWEEP = """
name: overhead
corpus: {{source: text, files: [text.txt], tokenizer: bytes, sequence_length: 128}}
trial: {{batch_tokens: 1024}}
ladder: [{{name: tiny, width: 32, layers: 2}}]
tokens: [1024]
arms: {{baseline: {{scale_vectors: baseline}}}}
seeds: [{seeds}]
"""
MOST_ROUNDS = 100
PROGRAM = """
import os, sys
folder = sys.argv[1]
with open(folder + "/result.json.part", "w") as file:
    file.write('{"status": "completed", "loss": 1.0, "loss_validation": 1.0}')
os.link(folder + "/result.json.part", folder + "/result.json")
"""
TRIAL = OwnTrial(
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
    """Seconds from submit to a trial's first step, of this process and of the clock a trial."""

    first_step: float
    process: float
    clock: float


def command_in(folder: Path) -> Command:
    """The command of one trial; ``folder`` is its run directory."""
    return (sys.executable, "-S", "-E", "-c", PROGRAM, str(folder))


class Quiet(Progress):
    """Says nothing."""

    def message(self, text: str) -> None:
        """Not said."""


class Ours:
    """An executor, and the scheduler on it, in ``folder``."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.site = Site(folder / "runs", "overhead", SLOTS, PROFILES.get(name, Profile()))
        self.sweep = prepared_sweep(folder, self.site.profile)
        self._members = iter(self.sweep.members())
        self._seeds = count()
        self.executor: Executor = EXECUTORS[name].build(self.site)

    def command(self, folder: Path) -> Command:
        """The next trial's training by the bare library."""
        fields = folder / "trial.json"
        fields.write_text(json.dumps(semantic_fields(next(self._members).trial)))
        program = Path(__file__).with_name("first_step.py")
        return (sys.executable, str(program), str(self.site.runs_dir / "corpora"), str(fields), str(folder))

    def first_step(self) -> float:
        """Seconds until the next trial has trained a step, as a run of ``scalevec`` would begin."""
        task = self.sweep.task(next(self._members))
        began = time.time()
        if self.name != "ray":  # to start a cluster is not what is compared
            self.executor = EXECUTORS[self.name].build(self.site)
        self._complete(self.executor, [task])
        metrics = RunDirectory.of(self.site.runs_dir, task.trial_id).metrics_path
        if self.name == "local":
            self.executor.close()
        return metrics.stat().st_mtime - began

    def _complete(self, executor: Executor, tasks: Sequence[Task]) -> None:
        outcome = Scheduler(self.site.runs_dir, executor, Quiet()).run(tasks)
        if outcome.failed:
            raise RuntimeError(f"{len(outcome.failed)} trials failed: {next(iter(outcome.failed.values()))}")

    def run(self, trials: int) -> None:
        """Take as many new trials through the scheduler."""
        built = [replace(TRIAL, seed=next(self._seeds)) for _ in range(trials)]
        tasks = [Task(trial_id(trial), trial, str(trial.seed), RunOptions(), 1.0) for trial in built]
        executor = EXECUTORS[self.name].build(self.site) if self.name == "local" else self.executor
        with patch("scalevec.orchestrator.attempts.jobs.worker_command", self._worker):
            self._complete(executor, tasks)

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
    """The peer of ``slurm``: arrays of as many as ours."""
    import submitit

    folder = tempfile.mkdtemp(prefix="submitit-", dir=Path.cwd())
    executor = submitit.AutoExecutor(folder, cluster="slurm")
    executor.update_parameters(timeout_min=5, mem_gb=1, cpus_per_task=1)
    for start in range(0, len(commands), LARGEST_ARRAY):
        jobs = executor.map_array(subprocess.call, commands[start : start + LARGEST_ARRAY])
        all_ended_well([job.result() for job in jobs])
    shutil.rmtree(folder)


def all_ended_well(codes: Any) -> None:
    """Raise ``RuntimeError`` where a command of a peer failed."""
    if any(codes):
        raise RuntimeError("a command of the peer failed")


PEERS: dict[str, Peer] = {"local": by_subprocess, "ray": by_ray, "slurm": by_submitit}


def prepared_sweep(folder: Path, profile: Profile) -> SweepRun:
    """A sweep of one-step trials on a prepared corpus, with as many seeds as any rounds may need."""
    (folder / "text.txt").write_text("".join(f"Line {number} of a text.\n" for number in range(5000)))
    path = folder / "overhead.yaml"
    path.write_text(SWEEP.format(seeds=", ".join(map(str, range(2 * MOST_ROUNDS)))))
    sweep, runs_dir, progress = load_sweep(str(path), folder / "runs"), folder / "runs", Quiet()
    return SweepRun(sweep, runs_dir, progress, prepared_facts(sweep, runs_dir, print), profile=profile)


def timed(run: Callable[[], None], trials: int) -> tuple[float, float]:
    """Seconds of this process, and of the clock, for each trial."""
    clock, cpu = time.monotonic(), time.process_time()
    run()
    return (time.process_time() - cpu) / trials, (time.monotonic() - clock) / trials


def figures_of_ours(ours: Ours, trials: int) -> Figures:
    """One round of an executor."""
    return Figures(ours.first_step(), *timed(lambda: ours.run(trials), trials))


def figures_of_peer(ours: Ours, folder: Path, trials: int) -> Figures:
    """One round of its peer."""
    peer = PEERS[ours.name]
    (step,) = new_folders(folder, 1)
    command, began = ours.command(step), time.time()
    peer([command])
    first_step = float((step / "first").read_text()) - began
    commands = [command_in(new_folder) for new_folder in new_folders(folder, trials)]
    return Figures(first_step, *timed(lambda: peer(commands), trials))


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
                of_ours = figures_of_ours(ours[name], trials)
                figures_by_name[name].append((of_ours, figures_of_peer(ours[name], folder, trials)))
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
    os.environ.setdefault("RAY_worker_niceness", "0")  # with 15 the rest of the machine is measured
    with tempfile.TemporaryDirectory(prefix="overhead-", dir=Path.cwd()) as folder:
        measured = measure(options.executors, options.rounds, options.trials, Path(folder))
    print(table(measured))
    if options.json is not None:
        what = {"rounds": options.rounds, "trials": options.trials, "slots": SLOTS, "seconds": measured}
        options.json.write_text(json.dumps(what, indent=1) + "\n")


if __name__ == "__main__":
    main()
