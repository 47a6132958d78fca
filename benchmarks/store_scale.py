"""The index at scale: run directories written by several processes, collected, looked at with ``status``.

    python benchmarks/store_scale.py [--trials 100000] [--processes N] [--store URL] [--folder FOLDER]

It measures an SQLite index, and with ``--store`` that of PostgreSQL too. With ``--folder`` the run
directories stay and are used again. Ends with exit code 1 if a trial is missing from an index.
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
from dataclasses import replace
from pathlib import Path

from scalevec.model.config import ModelConfig, OptimizerConfig, ScheduleConfig, Shape, Trial
from scalevec.model.identity import semantic_fields, trial_id
from scalevec.model.strategies import PRESETS
from scalevec.results.index.store import CollectReport, ResultsIndex
from scalevec.results.index.url import STORE_VARIABLE, parse_url, shown
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.results.sweep_folder import SweepFolder

SWEEP = "scale"
ARMS = ("baseline", "none", "unified", "unified-dp")
RATES = (0.008, 0.02, 0.05)
TEMPLATE = Trial(
    model=ModelConfig(Shape(64, 2, 2, 2, 176), 1024),
    optimizer=OptimizerConfig("adamw", RATES[0]),
    schedule=ScheduleConfig("cosine"),
    corpus="c" * 64,
    sequence_length=128,
    batch_tokens=1024,
    tokens=1024 * 390,
    seed=0,
    precision="float32",
)


def main() -> int:
    """Write, then measure each store; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=max(2, os.cpu_count() or 1))
    parser.add_argument("--store", help="a PostgreSQL URL to measure beside SQLite")
    parser.add_argument("--folder", type=Path, help="where the run directories stay")
    options = parser.parse_args()
    with _folder(options.folder) as folder:
        runs_dir = folder / "runs"
        if not (runs_dir / "sweeps").exists():
            _timed("write the run directories", lambda: _write(runs_dir, options.trials, options.processes))
        missing = _measure(runs_dir, f"sqlite:///{folder / 'index.sqlite'}", options.trials)
        if options.store:
            missing += _measure(runs_dir, options.store, options.trials)
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


def _trial(number: int) -> tuple[str, Trial]:
    """Trial ``number`` of the grid: its arm's name and what it trains."""
    seed, position = divmod(number, len(ARMS) * len(RATES))
    rate, arm = RATES[position % len(RATES)], ARMS[position // len(RATES)]
    model = replace(TEMPLATE.model, scale_vectors=PRESETS[arm])
    return arm, replace(
        TEMPLATE, model=model, seed=seed, optimizer=replace(TEMPLATE.optimizer, learning_rate=rate)
    )


def _write(runs_dir: Path, count: int, processes: int) -> None:
    """All run directories, each number by one of the processes, then the sweep that holds them."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(processes) as pool:
        parts = [(runs_dir, first, count, processes) for first in range(processes)]
        members = [member for part in pool.starmap(_write_part, parts) for member in part]
    folder = SweepFolder.of(runs_dir, SWEEP)
    folder.write_members(members)


def _write_part(runs_dir: Path, first: int, count: int, step: int) -> list[dict[str, object]]:
    return [_write_one(runs_dir, number) for number in range(first, count, step)]


def _write_one(runs_dir: Path, number: int) -> dict[str, object]:
    arm, trial = _trial(number)
    name = trial_id(trial)
    directory = RunDirectory.of(runs_dir, name)
    directory.create(semantic_fields(trial), {"first_sweep": SWEEP, "first_label": f"{arm} {number}"})
    directory.append_event("queued", executor="local")
    directory.append_event("running", attempt=1, step=0, micro_batch=0)
    directory.write_result(_result(number))
    directory.append_event("completed")
    cell = {"arm": arm, "stage": "comparison", "rung": "64x2", "seed": trial.seed, "lr_status": "fixed"}
    return {"trial_id": name, **cell, "tokens_per_parameter": 16, "setting": {}}


def _result(number: int) -> dict[str, object]:
    loss = 3 + number / 1e6
    losses = {"loss": loss, "loss_validation": loss + 0.01, "loss_initial": 6.93}
    counts = {"n_params": 25_000, "n_params_total": 90_000, "n_tokens": 399_360, "steps": 390}
    rates = {"flops": 6e10, "flops_counted": 9e10, "wall_s": 12.5, "tokens_per_s": 31_948.8}
    rest = {"device": "cpu", "precision": "float32", "micro_batch": 8, "resumes": 0, "epochs": 0.1}
    return {"status": "completed", **losses, **counts, **rates, **rest}


def _measure(runs_dir: Path, url: str, count: int) -> int:
    """Time what a person waits for; the number of trials that the index at ``url`` lacks."""
    print(f"{shown(parse_url(url))}: {count:,} trials")
    with ResultsIndex(url) as index:
        _timed("collect, nothing known", lambda: _counted(index.rebuild(runs_dir)))
        _timed("collect again, nothing changed", lambda: _counted(index.collect(runs_dir)))
        missing = count - len(index.states(runs_dir))
    name = next(iter(trial_ids(runs_dir)))
    for command in (["status"], ["status", "--json"], ["explain", name], ["collect", SWEEP]):
        _timed(
            " ".join(["scalevec", *command])[:33], lambda command=command: _scalevec(command, runs_dir, url)
        )
    print(f"missing: {missing}\n")
    return missing


def _counted(report: CollectReport) -> str:
    return f"{report.added} added, {report.unchanged} unchanged, {len(report.problems)} problems"


def _scalevec(command: list[str], runs_dir: Path, url: str) -> str:
    """Run the command as a person does; its first line."""
    program = str(Path(sysconfig.get_path("scripts")) / "scalevec")
    environment = os.environ | {STORE_VARIABLE: url}
    done = subprocess.run(
        [program, *command, "--runs", str(runs_dir)], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    if "--json" in command:
        return str(json.loads(done.stdout)[0]["states"])
    return done.stdout.partition("\n")[0][:60]


if __name__ == "__main__":
    sys.exit(main())
