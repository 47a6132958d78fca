"""The index at scale: run directories written by several processes, collected, looked at by commands.

    python benchmarks/store_scale.py [--trials 100000] [--processes N] [--store URL] [--folder FOLDER]

The trials are those of one sweep, all of them done. It measures an SQLite index, and with ``--store`` that of
PostgreSQL too. With ``--folder`` the run directories stay and are used again. Ends with exit code 1 if a
trial is missing from an index.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from scale_plan import write_plan

from scalevec.model.identity import semantic_fields
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.sources.sources import load_sweep
from scalevec.orchestrator.sweep.corpus_of_sweep import prepared_facts
from scalevec.orchestrator.sweep.kept_plan import Member
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from scalevec.results.index.database import STORE_VARIABLE, parse_url, shown
from scalevec.results.index.store import CollectReport, ResultsIndex
from scalevec.results.run_directory import trial_ids

SWEEP_FILE = "plan.yaml"
ROUNDS = 3
"""How often each command is timed; the best time counts."""


def main() -> int:
    """Write, then measure each store; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=max(2, os.cpu_count() or 1))
    parser.add_argument("--store", help="a PostgreSQL URL to measure beside SQLite")
    parser.add_argument("--folder", type=Path, help="where the run directories stay")
    options = parser.parse_args()
    with _folder(options.folder) as folder:
        if not (folder / "runs" / "sweeps").exists():
            write_plan(folder / SWEEP_FILE, options.trials)
            _timed("write the run directories", lambda: _write(folder, options.processes))
        missing = _measure(folder, f"sqlite:///{folder / 'index.sqlite'}")
        if options.store:
            missing += _measure(folder, options.store)
    return 1 if missing else 0


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="scalevec-scale-") as folder:
        yield Path(folder)


def _timed(what: str, act: Callable[[], object]) -> None:
    """Wall time, and processor time of this process and the children it waited for."""
    before, began = _processor_s(), time.perf_counter()
    answer = act()
    wall, processor = time.perf_counter() - began, _processor_s() - before
    print(
        f"{what:32s} {wall:7.2f} s  (CPU {processor:6.2f} s)  {'' if answer is None else answer}", flush=True
    )


def _processor_s() -> float:
    return sum(os.times()[:4])


def _run(folder: Path) -> SweepRun:
    """The sweep, on the runs folder beside its file."""
    sweep, runs_dir = load_sweep(str(folder / SWEEP_FILE), folder / "runs"), folder / "runs"
    return SweepRun(sweep, runs_dir, Progress(), prepared_facts(sweep, runs_dir, print))


def _write(folder: Path, processes: int) -> None:
    """The sweep, and all run directories, each by one of the processes."""
    run = _run(folder)
    run.write_members(run.members())
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.starmap(_write_part, [(folder, first, processes) for first in range(processes)])
    run.write_file()


def _write_part(folder: Path, first: int, step: int) -> None:
    run = _run(folder)
    for number, member in islice(enumerate(run.members()), first, None, step):
        _write_one(run, member, number)


def _write_one(run: SweepRun, member: Member, number: int) -> None:
    directory, task = run.directory(member.trial), run.task(member)
    directory.create(semantic_fields(member.trial), task.descriptive)
    directory.append_event("queued", executor="local")
    directory.append_event("running", attempt=1, step=0, micro_batch=0)
    directory.write_result(_result(number))
    directory.append_event("completed")


def _result(number: int) -> dict[str, object]:
    loss = 3 + number / 1e6
    losses = {"loss": loss, "loss_validation": loss + 0.01, "loss_initial": 6.93}
    counts = {"n_params": 25_000, "n_params_total": 90_000, "n_tokens": 399_360, "steps": 390}
    rates = {"flops": 6e10, "flops_counted": 9e10, "wall_s": 12.5, "tokens_per_s": 31_948.8}
    rest = {"device": "cpu", "precision": "float32", "micro_batch": 8, "resumes": 0, "epochs": 0.1}
    return {"status": "completed", **losses, **counts, **rates, **rest}


def _measure(folder: Path, url: str) -> int:
    """Time what a person waits for; the number of trials that the index at ``url`` lacks."""
    runs_dir = folder / "runs"
    count = sum(1 for _ in trial_ids(runs_dir))
    print(f"{shown(parse_url(url))}: {count:,} trials")
    with ResultsIndex(url) as index:
        _timed("collect, nothing known", lambda: _counted(index.rebuild(runs_dir)))
        _timed("collect again, nothing changed", lambda: _counted(index.collect(runs_dir)))
        missing = count - len(index.states(runs_dir))
    name, sweep = next(iter(trial_ids(runs_dir))), str(folder / SWEEP_FILE)
    for command in (["status"], ["status", "--json"], ["plan", sweep], ["explain", name]):
        _timed_command(command, runs_dir, url)
    print(f"missing: {missing}\n")
    return missing


def _timed_command(command: list[str], runs_dir: Path, url: str) -> None:
    """The best of some rounds: others may use the machine."""
    best = min(_times(command, runs_dir, url) for _ in range(ROUNDS))
    print(f"{' '.join(['scalevec', *command])[:32]:32s} {best[0]:7.2f} s  (CPU {best[1]:6.2f} s)", flush=True)


def _counted(report: CollectReport) -> str:
    return f"{report.added} added, {report.unchanged} unchanged, {len(report.problems)} problems"


def _times(command: list[str], runs_dir: Path, url: str) -> tuple[float, float]:
    """Wall and processor time of the command as a person runs it."""
    program = str(Path(sysconfig.get_path("scripts")) / "scalevec")
    environment = os.environ | {STORE_VARIABLE: url}
    before, began = _processor_s(), time.perf_counter()
    done = subprocess.run(
        [program, *command, "--runs", str(runs_dir)], env=environment, capture_output=True, text=True
    )
    wall, processor = time.perf_counter() - began, _processor_s() - before
    if done.returncode:
        raise SystemExit(done.stderr)
    if "--json" in command:
        json.loads(done.stdout)
    return wall, processor


if __name__ == "__main__":
    sys.exit(main())
