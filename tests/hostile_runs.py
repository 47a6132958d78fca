"""What somebody else may put into a runs folder: links, special files, programs, and names that are none."""

import hashlib
import json
import os
import pickle
import random
import shutil
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

MARK = "executed"
"""A file of this name, wherever it appears, shows that something that lay in a runs folder was executed."""
GB_3 = 3 * 2**30
JSON_BYTES = 90_000_000
SHELL = (f"$(touch {MARK})", f"`touch {MARK}`", f"; touch {MARK} #", f"| touch {MARK}", f"-o{MARK}")
CODE = f"open({MARK!r}, 'w').close()"
FORMULAS = (f"__import__('os').system('touch {MARK}')", f"[{CODE} for _ in [0]]", "{0.__class__}", "%n%s")
NAMES = (
    *(*SHELL, "-rf", "--help", "a\nb", "\x1b[2J", "\u202egnp.exe", "é" * 100, "x" * 255, " ", "~", "*"),
    *("a b", "'", '"', "\\", "COM1", "members.json", "0", "None", "__init__", "00", "sweep:x"),
)
NUMBERS = (
    *(*SHELL, "?0/0@20260101T000000-deadbeef", "?0/0@../../private", "?0", "?", "-1", "--help", "", "\0"),
    *("12_3\n4", "9" * 5000, "1_[0-9999999]", "../../private", "vm/boot/ns/1/5", "vm/boot/ns/-1/5", "\ud800"),
)
EXECUTORS = ("slurm", "slurm", "ray", "local", "simulate", "", "-x", "../x", "os.system")


class _Program:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {MARK}",)


PICKLE = pickle.dumps(_Program())
PROFILES = f"""\
cluster: {{log: ["touch {MARK}"], setup: ["touch {MARK}"]}}
other: {{python: "touch {MARK}; python", launcher: "touch {MARK};"}}
slurm: {{setup: ["touch {MARK}"]}}
"""
PROGRAMS: Mapping[str, bytes] = {
    **dict.fromkeys(("sitecustomize.py", "conftest.py", "__init__.py", "evil.py", "train.py"), CODE.encode()),
    **dict.fromkeys(("json.py", "torch.py", "numpy.py", "start.py", "matplotlib.py"), CODE.encode()),
    **dict.fromkeys(("0_submitted.pkl", "0_0_result.pkl", "state.pt", "trial.pkl", "rows.pkl"), PICKLE),
    "step-000000100.safetensors": PICKLE,
    "rows.parquet": PICKLE,
    "index.sqlite": PICKLE,
    "submit.sh": f"#!/bin/sh\ntouch {MARK}\n".encode(),
    "profiles.yaml": PROFILES.encode(),
    "matplotlibrc": b"backend: module://evil\ntext.usetex: True\n",
    ".git/config": f'[core]\n\tfsmonitor = "touch {MARK}; false"\n\tpager = touch {MARK}\n'.encode(),
    ".git/HEAD": b"ref: refs/heads/main\n",
    ".git/hooks/post-index-change": f"#!/bin/sh\ntouch {MARK}\n".encode(),
    "pyproject.toml": b'[project.entry-points."scalevec.plugins"]\nevil = "evil"\n',
    "sending.json": b'{"name": "sh", "directories": [["."]], "tokens": [["x"]]}',
}


class Outside:
    """Somebody's private ``folder``, beside the runs folder: nothing may change it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "claims").mkdir(parents=True)
        (folder / "notes.txt").write_text("mine\n")
        (folder / "events.jsonl").write_text('{"state": "completed"}\n')
        (folder / "log.txt").write_text("no line end")
        (folder / "step-000000100.safetensors").write_text("a checkpoint")
        (folder / "claims" / "0001.json").write_text("{}")
        os.mkfifo(folder / "fifo")
        self._before = self._now()

    def take(self, path: Path) -> Path:
        """A copy of what is at ``path``, so that a link to it leads to what would be read well."""
        copy = self.folder / "copies" / path.name
        if not copy.exists():
            copy.parent.mkdir(exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, copy, symlinks=True, ignore=_special)
            elif path.is_file():
                shutil.copy(path, copy)
            self._before = self._now()
        return copy

    def is_untouched(self) -> bool:
        return self._now() == self._before

    def _now(self) -> dict[str, tuple[int, int, str]]:
        contents = {}
        for path in sorted(self.folder.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            contents[str(path)] = status.st_mode, status.st_mtime_ns, hashlib.sha256(content).hexdigest()
        return contents


def _special(folder: str, names: list[str]) -> list[str]:
    modes = ((name, os.lstat(f"{folder}/{name}").st_mode) for name in names)
    return [name for name, mode in modes if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))]


Put = Callable[[Path, Outside], object]


def _link_to(target: str) -> Put:
    return lambda path, outside: path.symlink_to(target.format(private=outside.folder, name=path.name))


def _sparse(path: Path, _outside: Outside) -> None:
    path.touch()
    os.truncate(path, GB_3)


def _device(path: Path, _outside: Outside) -> None:
    with suppress(PermissionError):  # root alone may
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))


def _many(value: str) -> Put:
    return lambda path, _: path.write_text(f"[{value * (JSON_BYTES // len(value))}0]\n")


OF_ANY: Mapping[str, Put] = {
    "a FIFO": lambda path, _: os.mkfifo(path),
    "a socket": lambda path, _: os.mknod(path, stat.S_IFSOCK | 0o666),
    "a device": _device,
    "a link to nothing": _link_to("absent"),
    "a link to itself": _link_to("{name}"),
    "a link to a FIFO": _link_to("{private}/fifo"),
    "a link to /dev/zero": _link_to("/dev/zero"),
}
IN_PLACE_OF_A_FILE: Mapping[str, Put] = {
    **OF_ANY,
    "a folder": lambda path, _: path.mkdir(),
    "a link to a file like it": lambda path, outside: path.symlink_to(outside.folder / "copies" / path.name),
    "a link to a private file": _link_to("{private}/notes.txt"),
    "a link to private events": _link_to("{private}/events.jsonl"),
    "a link to /etc/passwd": _link_to("/etc/passwd"),
    "a link to /dev/random": _link_to("/dev/random"),
    "a link to a terminal": _link_to("/dev/tty"),
    "3 GB of nothing": _sparse,
    "a pickle": lambda path, _: path.write_bytes(PICKLE),
    "deep lists": lambda path, _: path.write_text("[" * 200_000),
    "deep objects": lambda path, _: path.write_text('{"a":' * 900 + "1" + "}" * 900 + "\n"),
    "an integer of 4000 digits": lambda path, _: path.write_text(f'{{"step": {"9" * 4000}}}\n'),
    "NUL": lambda path, _: path.write_bytes(bytes(1000)),
}
LARGE: Mapping[str, Put] = {
    "millions of objects": _many("{},"),
    "millions of lists": _many('{"":[]},'),
    "90 MB of text": lambda path, _: path.write_text(f'["{"a" * JSON_BYTES}é😀"]\n'),
    "a line of 90 MB": lambda path, _: path.write_bytes(b" " * JSON_BYTES),
}
IN_PLACE_OF_A_FOLDER: Mapping[str, Put] = {
    **OF_ANY,
    "deleted": lambda *_: None,
    "empty": lambda path, _: path.mkdir(),
    "a file": lambda path, _: path.write_bytes(b"a file"),
    "a link to a private folder": _link_to("{private}"),
    "a link to one like it": lambda path, outside: path.symlink_to(outside.folder / "copies" / path.name),
    "a link to the folder around it": _link_to(".."),
    "a link to /proc": _link_to("/proc"),
    "a link to /proc/self": _link_to("/proc/self"),
}


def plant_programs(chance: random.Random, runs: Path, name: str, trial: Path) -> str:
    """Put things that a careless reader would execute into a folder of ``runs``, or into each that we use."""
    sweep = runs / "sweeps" / name
    token = sweep / "slurm" / "20260101T000000-deadbeef"
    folders = [runs, runs.parent, sweep, sweep / "controller", token]
    folders += [trial, trial / "checkpoints", trial / "out", runs / "trainers" / ("a" * 32)]
    folders += [runs / "snapshots" / ("a" * 16), runs / "corpora" / ("c" * 64)]
    for folder in folders if chance.random() < 0.5 else [chance.choice(folders)]:
        for file, content in PROGRAMS.items():
            if not (folder / file).exists():
                put(folder / file, content)
    put(sweep / "origin.json", json.dumps({"folder": str(runs.parent)}).encode())
    return "programs"


def put(path: Path, content: bytes) -> None:
    """Write a new file, unless something else was broken on the way to it: nothing is written elsewhere."""
    with suppress(OSError):
        if is_in_place(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(content)


def is_in_place(path: Path) -> bool:
    """Whether no folder on the way to ``path`` is a link."""
    with suppress(RuntimeError):  # a loop
        return path.parent.resolve() == path.parent.absolute()
    return False


def plant_jobs(chance: random.Random, runs: Path, name: str, trial: Path) -> str:
    """Make jobs with hostile numbers those of a trial and of the sweep's controller."""
    for folder in (trial, runs / "sweeps" / name / "controller"):
        lines = [json.dumps(_job(chance)) + "\n" for _ in range(chance.choice((1, 1, 5)))]
        put(folder / "jobs.jsonl", "".join(lines).encode())
    return "jobs"


def _job(chance: random.Random) -> dict[str, Any]:
    record = {"executor": chance.choice(EXECUTORS), "job": chance.choice(NUMBERS)}
    record |= {"token": chance.choice(("", "x", *SHELL)), "time": "2999-01-01T00:00:00.000+00:00"}
    more = {"cluster": chance.choice(SHELL), "user": chance.choice(NAMES), "replaces": chance.choice(NUMBERS)}
    return record | {key: value for key, value in more.items() if chance.random() < 0.3}


def plant_names(chance: random.Random, runs: Path, name: str, trial: Path) -> str:
    """Make files and folders with hostile names where we list names."""
    sweep = runs / "sweeps" / name
    folders = (runs / "sweeps", runs / "trials", trial.parent, trial / "claims", trial / "checkpoints", sweep)
    for hostile in [*chance.sample(NAMES, 4), os.fsdecode(b"\xff\xfe")]:
        folder = chance.choice(folders)
        if folder == sweep.parent and is_in_place(sweep / "any"):
            with suppress(OSError):  # a name that is too long
                shutil.copytree(sweep, folder / hostile, copy_function=os.link, symlinks=True)
        else:
            put(folder / f"{hostile[:200]}{chance.choice(('', '.json', '.jsonl'))}", PICKLE)
    return "names"
