"""Run folders of a simulated sweep with something broken in them, all of it following from a seed."""

import contextlib
import json
import os
import random
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scalevec.orchestrator.errors import Exit
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.results.sweep_folder import SweepFolder
from simulations import SWEEP, simulated
from support import call_main

LIMIT_S, LIMIT_BYTES = 10.0, 10**9
NAME = SWEEP["name"]
OF_SWEEP = ("members.json", "tuning.json", "resolved.json", "sweep.yaml", "origin.json", "verdicts.json")
OF_TRIAL = ("trial.json", "environment.json", "events.jsonl", "metrics.jsonl", "result.json", "log.txt")
RARE = ("jobs.jsonl", "claims/0001.json", "claims/0001.beat", "claims/0001.done")
TUNE = {"learning_rate": [0.004, 0.008, 0.016], "rungs": ["small"], "seeds": [100], "extend": 1}
ESCAPES = "\x1b[2J\x1b]0;title\x07"
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 0.5, 10**40, 1e308, float("nan"), [], {}, [[]], [None], {"a": 1}),
    *("", "zz", "1", "\0", "\ud800", ESCAPES, "../../../../etc", "é" * 300, "x" * 5000),
)
COMMANDS: dict[str, int] = {
    "status": 4,
    "status --json": 2,
    "results": 3,
    "results --format json": 2,
    "results --vector-norms": 2,
    "collect": 2,
    "store rebuild": 2,
    "explain TRIAL": 5,
    "explain TRIAL --json": 2,
    "plan": 3,
    "plan --json": 1,
    "fit --bootstrap 20": 3,
    "compare": 3,
    "compare --verbose": 2,
    "compare --json": 1,
    "theory": 2,
    "table main": 2,
    "table ablation": 2,
    "table decay": 1,
    "table overhead": 1,
    "table scaling": 1,
    "table optimizers": 1,
    "table comparison": 1,
    "figures -o figures --format png": 1,
    "report": 2,
}
"""Commands that only read, with how often each is tried."""
WITHOUT_SWEEP = ("collect", "store", "explain")


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


class Damaged:
    """A copy in ``folder`` of the ``whole`` runs, with one to three things broken."""

    def __init__(self, whole: Path, folder: Path, seed: int) -> None:
        self.random, self.folder, self.runs = random.Random(seed), folder, folder / "runs"
        self.done: list[str] = []
        """What was broken, in words."""
        # Links, since copies take longer than the commands; nothing is written into a file that is there.
        shutil.copytree(whole, self.runs, copy_function=os.link)
        self.trial = RunDirectory.of(self.runs, self.random.choice(list(trial_ids(self.runs))))
        if self.random.random() < 0.5:
            self.call("collect")
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            self._break_something()

    def call(self, command: str) -> tuple[int, str]:
        """The exit code and the output of a command on the damaged runs."""
        words = command.replace("TRIAL", self.trial.trial_id[:12]).split()
        sweep = [] if words[0] in WITHOUT_SWEEP else [NAME]
        arguments = [words[0], *sweep, *words[1:], "--runs", str(self.runs)]
        done = call_main(arguments, self.folder, {"SCALEVEC_CACHE_DIR": str(self.folder / "cache")})
        return done.returncode, done.stdout + done.stderr

    def failures(self, n_commands: int) -> list[str]:
        """What some of the reading commands did that none may do, with what was broken."""
        names = self.random.choices(list(COMMANDS), list(COMMANDS.values()), k=n_commands)
        problems = [f"{name}: {problem}" for name in names for problem in self._problems(name)]
        return [f"{', '.join(self.done)}: {problem}" for problem in problems]

    def _problems(self, command: str) -> list[str]:
        # The processor's time, whatever else the machine does, and memory beyond what earlier tests left.
        began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        code, text = self.call(command)
        took_s = time.process_time() - began
        used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        faults = [line for line in text.splitlines() if "internal error" in line or "Traceback" in line]
        faults += [f"exit code {code}: {text[-300:]}"] if code not in (Exit.DONE, Exit.INVALID_INPUT) else []
        faults += ["escape sequences"] if "\x1b" in text and not command.startswith("results") else []
        faults += [f"took {took_s:.0f} s"] if took_s > LIMIT_S else []
        return faults + ([f"{used / 1e9:.1f} GB"] if used > LIMIT_BYTES else [])

    def _break_something(self) -> None:
        what = self.random.random()
        if what < 0.1:
            self._break_directory(self.random.choice((self.trial.path, self.trial.path.parent)))
        elif what < 0.15:
            self._leave_out_some()
        elif what < 0.25:
            self.call("collect")
            for path in (self.folder / "cache").glob("*.sqlite"):
                self._break_file(path)
        elif what < 0.55:
            self._break_file(self.runs / "sweeps" / NAME / self.random.choice(OF_SWEEP))
        else:
            self._break_file(self.trial.path / self.random.choice((*OF_TRIAL * 3, *RARE)))

    def _leave_out_some(self) -> None:
        """As after ``run --where``: trials of the sweep that never ran."""
        for name in trial_ids(self.runs):
            if self.random.random() < 0.5:
                shutil.rmtree(RunDirectory.of(self.runs, name).path, ignore_errors=True)  # a file by now
        self.done.append("left out some trials")

    def _break_directory(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            kind = self.random.choice(list(IN_PLACE_OF_A_FOLDER))
            IN_PLACE_OF_A_FOLDER[kind](path)
            self.done.append(f"{path.name[:12]}: {kind}")

    def _break_file(self, path: Path) -> None:
        if not path.is_file():
            return
        content = path.read_bytes()
        path.unlink()
        kinds = [*OF_ANY_FILE, *(["edited"] * len(OF_ANY_FILE) if path.suffix.startswith(".json") else [])]
        kind = self.random.choice(kinds)
        if kind == "edited":
            content, kind = self._edited(content, path.suffix)
            path.write_bytes(content)
        else:
            OF_ANY_FILE[kind](path, content, self.random)
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

    def _changed(self, value: Any, depth: int = 0) -> tuple[str, Any]:
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
        what, inner = self._changed(value[key], depth + 1)
        changed = (
            {**value, key: inner} if isinstance(value, dict) else [*value[:key], inner, *value[key + 1 :]]
        )
        return f"{key} {what}", changed


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


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


OF_ANY_FILE: dict[str, Callable[[Path, bytes, random.Random], object]] = {
    "deleted": lambda *_: None,
    "empty": lambda path, *_: path.touch(),
    "truncated": lambda path, content, chance: path.write_bytes(_cut(content, chance)),
    "flipped": _flipped,
    "garbage": lambda path, _, chance: path.write_bytes(chance.randbytes(400)),
    "escapes": lambda path, content, _: path.write_bytes(content + f"\n{ESCAPES}\n".encode()),
    "latin-1": lambda path, content, _: path.write_bytes(b"\xe9" + content),
    "a folder": lambda path, *_: path.mkdir(),
    "a loop": lambda path, *_: path.symlink_to(path),
}
IN_PLACE_OF_A_FOLDER: dict[str, Callable[[Path], object]] = {
    "deleted": lambda _: None,
    "a file": lambda path: path.write_bytes(b"a file"),
    "empty": lambda path: path.mkdir(),
    "a loop": lambda path: path.symlink_to(path),
    "dangling": lambda path: path.symlink_to("absent"),
}
