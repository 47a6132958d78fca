"""Runs folders with something broken in them, or put there by somebody hostile, all following from a seed."""

import contextlib
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hostile_runs
from foreign_sweep import SMALL, ForeignSweep
from limits import HangError, memory_bytes, within
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.sweep import job_ending
from scalevec.results.files import read_json, write_json
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.results.sweep_folder import SweepFolder
from simulations import SWEEP, simulated
from support import call_main

LIMIT_S, LIMIT_BYTES = 10.0, 10**9
OF_A_COMMAND = 250_000_000
"""Bytes that a command in a process of its own takes for its libraries; those are loaded here."""
CODES = (Exit.DONE, Exit.SOME_FAILED, Exit.INVALID_INPUT, Exit.MISSING_REQUIREMENT)
CLUSTER = ("squeue", "sacct", "scontrol", "scancel", "sinfo", "sbatch")
NAME = SWEEP["name"]
OF_SWEEP = (
    *("members.json", "tuning.json", "resolved.json", "sweep.yaml", "origin.json", "verdicts.json"),
    *("dropped.json", "to_come.json", "cancelled.json"),
    "report.html",
)
OF_TRIAL = ("trial.json", "environment.json", "events.jsonl", "metrics.jsonl", "result.json", "log.txt")
RARE = (
    *("jobs.jsonl", "claims/0001.json", "claims/0001.beat", "claims/0001.done", "fields.json"),
    *("checkpoints/step-000000100.safetensors", "out/log.jsonl"),
)
TUNE = {"learning_rate": [0.004, 0.008, 0.016], "rungs": ["small"], "seeds": [100], "extend": 1}
ESCAPES = "\x1b[2J\x1b]0;title\x07"
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 0.5, 10**40, 1e308, float("nan"), [], {}, [[]], [None], {"a": 1}),
    *("", "zz", "1", "\0", "\ud800", ESCAPES, "../../../../etc", "é" * 300, "x" * 5000),
    *(*hostile_runs.NAMES, *hostile_runs.FORMULAS),
)
COMMANDS: dict[str, int] = {
    "status SWEEP": 6,
    "status": 6,
    "status SWEEP --json": 3,
    "results SWEEP": 6,
    "results SWEEP --format json": 4,
    "store rebuild": 3,
    "explain TRIAL": 9,
    "explain TRIAL --json": 4,
    "logs TRIAL": 4,
    "logs SWEEP": 2,
    "corpus inspect " + "c" * 64: 1,
    "doctor": 1,
    "cancel SWEEP": 3,
    "retry SWEEP": 3,
    "export TRIAL -o exported": 2,
    "plan SWEEP": 4,
    "plan SWEEP --json": 1,
    "next SWEEP": 2,
    "predict SWEEP": 1,
    "fit SWEEP --bootstrap 20": 3,
    "compare SWEEP": 2,
    "compare SWEEP --verbose": 1,
    "compare SWEEP --json": 1,
    "theory SWEEP": 2,
    "table SWEEP ablation": 1,
    "table SWEEP overhead": 1,
    "table SWEEP scaling": 1,
    "table SWEEP comparison": 1,
    "figures SWEEP -o figures --format png": 1,
    "report SWEEP": 1,
}
"""Commands that read, with how often each is tried; none of them trains."""
CHEAP = tuple(COMMANDS)[:10]


TIMED = {
    "micro_batch": 4,
    "world_size": 1,
    "recompute": "none",
    "keep": "none",
    "device": "cpu",
    "test_tokens": 1001,
    "validation_tokens": 2001,
    "wall_s": 57.0,
    "peak_memory_bytes": 400_000_000,
    "timing": {
        "data_s": 1.0,
        "checkpoints_s": 2.0,
        "evaluation_s": 3.0,
        "mfu": 0.31,
        "step_s": {"p5": 0.1, "p50": 0.2, "p95": 0.4},
    },
}
"""What a training leaves in its result, and a simulation does not."""


def whole_runs(folder: Path) -> Path:
    """A runs folder with nothing broken: tuning, comparison, and the records that training leaves."""
    measure = {"what": ["preconditioner"], "every": 100}
    simulated(folder, tune=TUNE, compare={"reference": "baseline", "margin": 0.005}, measure=measure)
    names = list(trial_ids(folder))
    verdict = {"reference": "baseline", "arm": "unified", "verdict": "better", "pairs": [names[:2]]}
    SweepFolder.of(folder, NAME).add_verdicts([verdict | {"at": "2026-01-01T00:00:00.000+00:00"}])
    for name in names:
        directory = RunDirectory.of(folder, name)
        directory.write_job("simulate", "7_1", "token")
        directory.log_path.write_text("step 100\nstep 200\n")
        directory.append_event("running", attempt=1, step=100)
        directory.append_event("pending", cause="error", error="Error: one", traceback="ab")
        directory.append_event("completed")
        for step in (0, 100, 200):
            directory.append_metrics(_metrics(step))
    return folder


def _metrics(step: int) -> dict[str, Any]:
    vectors = {"sv/final/mean": 1.0, "sv/final/deviation": 0.1, "sv/final/mean/layers": [0.9, 1.1]}
    theory = {"theory/final/movement": [0.1, 0.2], "theory/sharpness": 3.5}
    loss = {"step": step, "tokens": step * 2048, "loss": 8 - step / 100, "learning_rate": 0.01}
    return {**loss, "gradient_norm": 1.0, "tokens_per_s": 1e5, **vectors, **theory}


def several_sweeps(folder: Path) -> Path:
    """A runs folder with that sweep, and one that somebody's script has trained."""
    runs, theirs = whole_runs(folder / "runs"), folder / "theirs"
    theirs.mkdir()
    ForeignSweep(theirs, SMALL).start().communicate()
    for part in ("trials", "sweeps"):  # a folder of simulations takes no other runs
        shutil.copytree(theirs / "runs" / part, runs / part, dirs_exist_ok=True)
    for name in trial_ids(runs):
        path = RunDirectory.of(runs, name).result_path
        write_json(path, read_json(path, dict) | TIMED)
    (folder / "bin").mkdir()
    for name in CLUSTER:  # a cluster that has none of the jobs
        (folder / "bin" / name).write_text("#!/bin/sh\n")
        (folder / "bin" / name).chmod(0o755)
    return runs


class Damaged:
    """A copy in ``folder`` of the ``whole`` runs, with one to three things broken, or put there."""

    def __init__(self, whole: Path, folder: Path, seed: int) -> None:
        self.random, self.folder, self.runs = random.Random(seed), folder, folder / "runs"
        self.done: list[str] = []
        """What was broken, in words."""
        self.sweep = self.random.choice((NAME, NAME, NAME, "theirs"))
        path = f"{whole.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.variables = {"SCALEVEC_CACHE_DIR": str(folder / "cache"), "PATH": path}
        shutil.copytree(whole, self.runs, copy_function=_copied)
        self.outside = hostile_runs.Outside(folder / "private")
        of_sweep = [member["trial_id"] for member in self.kept.members() or []]
        self.trial = RunDirectory.of(self.runs, self.random.choice(of_sweep or list(trial_ids(self.runs))))
        if self.random.random() < 0.3:
            self.call("status")
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            self._break_something()

    @property
    def kept(self) -> SweepFolder:
        return SweepFolder.of(self.runs, self.sweep)

    def call(self, command: str) -> tuple[int, str]:
        """The exit code and the output of a command on the damaged runs."""
        words = command.replace("TRIAL", self.trial.trial_id[:12]).replace("SWEEP", self.sweep).split()
        # How long it waits for a worker that may be elsewhere is no matter here.
        with within(LIMIT_S), patch.object(job_ending, "END_WAIT_S", 1.0):
            done = call_main([*words, "--runs", str(self.runs)], self.folder, self.variables)
        return done.returncode, done.stdout + done.stderr

    def failures(self) -> list[str]:
        """What two of the commands did that none may do, with what was broken."""
        names = [self.random.choice(CHEAP), *self.random.choices(list(COMMANDS), list(COMMANDS.values()))]
        problems = [f"{name}: {problem}" for name in names for problem in self._problems(name)]
        problems += [f"{path} was executed" for path in self.folder.rglob(hostile_runs.MARK)]
        problems += [] if self.outside.is_untouched() else ["what lies outside was changed"]
        return [f"{', '.join(self.done)}: {problem} (of {names})" for problem in problems]

    def _problems(self, command: str) -> list[str]:
        before = memory_bytes("VmRSS")
        try:
            code, text = self.call(command)
        except HangError:
            return [f"did not end within {LIMIT_S} s"]
        used = OF_A_COMMAND + memory_bytes("VmHWM") - before
        faults = [line for line in text.splitlines() if "internal error" in line or "Traceback" in line]
        faults += [f"exit code {code}: {text[-300:]}"] if code not in CODES else []
        faults += ["escape sequences"] if "\x1b" in text and not command.startswith("results") else []
        return faults + ([f"{used / 1e9:.1f} GB"] if used > LIMIT_BYTES else [])

    def _break_something(self) -> None:
        what = self.random.random()
        if what < 0.15:
            self._replace_a_folder()
        elif what < 0.2:
            self._leave_out_some()
        elif what < 0.25:
            self.call("status")
            for path in (self.folder / "cache").glob("*.sqlite"):
                self._break_file(path, OF_ANY_FILE)
        elif what < 0.4:
            plants = (hostile_runs.plant_programs, hostile_runs.plant_jobs, hostile_runs.plant_names)
            plant = self.random.choice(plants)
            self.done.append(plant(self.random, self.runs, self.sweep, self.trial.path))
        else:
            of_sweep, kept = self.random.random() < 0.4, self.kept
            names = OF_SWEEP if of_sweep else (*OF_TRIAL * 3, *RARE)
            path = (kept.path if of_sweep else self.trial.path) / self.random.choice(names)
            self._break_file(path, OF_ANY_FILE if self.random.random() < 0.6 else {})

    def _leave_out_some(self) -> None:
        """As after ``run --where``: trials of the sweep that never ran."""
        for name in () if (self.runs / "trials").is_symlink() else trial_ids(self.runs):
            if self.random.random() < 0.5:
                path = RunDirectory.of(self.runs, name).path
                if hostile_runs.is_in_place(path) and path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
        self.done.append("left out some trials")

    def _replace_a_folder(self) -> None:
        trial, sweep = self.trial, self.kept.path
        inner = (trial.claims_path, trial.checkpoints_path, trial.out_path, sweep / "controller")
        outer = (trial.path, trial.path.parent, sweep, self.runs / "trials", self.runs / "sweeps")
        path = self.random.choice((*outer, *inner, sweep / "predictions", self.runs / "corpora"))
        if path.parent.is_dir() and hostile_runs.is_in_place(path) and not path.is_symlink():
            self.outside.take(path)
            shutil.rmtree(path, ignore_errors=True)
            kind = self.random.choice(list(hostile_runs.IN_PLACE_OF_A_FOLDER))
            hostile_runs.IN_PLACE_OF_A_FOLDER[kind](path, self.outside)
            self.done.append(f"{path.name[:12]}: {kind}")

    def _break_file(self, path: Path, kinds: dict[str, Any]) -> None:
        """Damage it in one of these ways; without any, put something else in its place."""
        if not path.parent.is_dir() or not hostile_runs.is_in_place(path) or path.is_symlink():
            return
        if path.exists() and not (path.is_file() and path.stat().st_size < 10**7):  # it was put there
            return
        self.outside.take(path)
        content = path.read_bytes() if path.exists() else b"{}"
        path.unlink(missing_ok=True)
        edits = ["edited"] * len(kinds) if path.suffix.startswith(".json") else []
        others = hostile_runs.LARGE if self.random.random() < 0.03 else hostile_runs.IN_PLACE_OF_A_FILE
        kind = self.random.choice([*kinds, *edits] or list(others))
        if kind == "edited":
            content, kind = self._edited(content, path.suffix)
            path.write_bytes(content)
        elif kinds:
            kinds[kind](path, content, self.random)
        else:
            others[kind](path, self.outside)
        self.done.append(f"{path.parent.name[:8]}/{path.name}: {kind}")

    def _edited(self, content: bytes, suffix: str) -> tuple[bytes, str]:
        """JSON, or JSON lines, of which one value is another one or is gone."""
        with contextlib.suppress(ValueError):
            if suffix == ".json":
                value = json.loads(content)
                what, value = self._changed(value)
                return json.dumps(value).encode(), what
            lines = content.decode().splitlines()
            number = self.random.randrange(len(lines))
            what, value = self._changed(json.loads(lines[number]))
            lines[number] = json.dumps(value)
            return "\n".join([*lines, ""]).encode(), f"line {number + 1} {what}"
        return content, "left as it was"

    def _changed(self, value: Any) -> tuple[str, Any]:
        """What was changed, and ``value`` with it: mostly something within, sometimes all of it."""
        inside = isinstance(value, dict | list) and len(value) > 0
        if not inside or self.random.random() < 0.1:
            odd = self.random.choice(ODD)
            return f"= {str(odd)[:20]!r}", odd
        key = self.random.choice(list(value) if isinstance(value, dict) else list(range(len(value))))
        action = self.random.random()
        if action < 0.2:
            return f"{key} deleted", _without(value, key)
        if action < 0.3:
            return f"{key} twice or renamed", _doubled(value, key)
        what, inner = self._changed(value[key])
        changed = (
            {**value, key: inner} if isinstance(value, dict) else [*value[:key], inner, *value[key + 1 :]]
        )
        return f"{key} {what}", changed


def _copied(source: str, target: str) -> None:
    """A link, which takes less time, where nothing is written into the file that is there."""
    (shutil.copyfile if source.endswith(".jsonl") else os.link)(source, target)


def _without(value: Any, key: Any) -> Any:
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if name != key}
    return value[:key] + value[key + 1 :]


def _doubled(value: Any, key: Any) -> Any:
    if isinstance(value, dict):
        return {**_without(value, key), f"{key}\x1b[1m": value[key]}
    return [*value, value[key]]


def _flipped(path: Path, content: bytes, chance: random.Random) -> None:
    broken = bytearray(content)
    for _ in range(min(len(broken), chance.choice((1, 3, 30)))):
        broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
    path.write_bytes(broken)


OF_ANY_FILE: dict[str, Callable[[Path, bytes, random.Random], object]] = {
    "deleted": lambda *_: None,
    "empty": lambda path, *_: path.touch(),
    "truncated": lambda path, content, chance: path.write_bytes(content[: chance.randint(0, len(content))]),
    "flipped": _flipped,
    "garbage": lambda path, _, chance: path.write_bytes(chance.randbytes(400)),
    "escapes": lambda path, content, _: path.write_bytes(content + f"\n{ESCAPES}\n".encode()),
    "latin-1": lambda path, content, _: path.write_bytes(b"\xe9" + content),
    "not a number": lambda path, content, _: path.write_bytes(re.sub(rb"\d+\.\d+", b"NaN", content)),
    "twice": lambda path, content, _: path.write_bytes(re.sub(rb'("\w+"): ', rb"\1: 1, \1: ", content)),
    "NULs": lambda path, content, _: path.write_bytes(content.replace(b" ", b"\0")),
}
