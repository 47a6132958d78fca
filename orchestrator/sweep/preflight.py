"""A small job before the grid: is the machine where trials will run like the one they are sent from?

``python -P -m scalevec.orchestrator.sweep.preflight --runs RUNS_DIR --expect JSON --report FILE``
"""

import argparse
import importlib.metadata
import json
import os
import platform
import secrets
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scalevec.model.data import CorpusError
from scalevec.model.data.corpus import open_corpus, verify
from scalevec.model.train.devices import missing_compiler
from scalevec.orchestrator.attempts.jobs import PYTHON_MODULE
from scalevec.orchestrator.snapshots.snapshot import code_name
from scalevec.orchestrator.worker.plugins import problems_here
from scalevec.orchestrator.worker.provenance import code_state, foreign_package
from scalevec.results.files import (
    AlreadyWrittenError,
    CorruptRecordError,
    read_bytes_if_any,
    write_json,
    write_once,
)


@dataclass(frozen=True)
class Expected:
    """What the submitter has, or asks of the machine. ``token`` is the content of a file in ``folder``."""

    code: Mapping[str, str | None]
    """As :func:`code_here` returns it."""
    corpora: Sequence[str] = ()
    gpus: bool = False
    free_bytes: int = 0
    folder: str = ""
    token: str = ""
    compiles: str = ""
    """The device for which blocks are compiled there: ``cpu`` or ``cuda``; empty: none."""


@dataclass(frozen=True)
class MachineCheck:
    """One finding; ``problem`` is empty where all is well."""

    name: str
    problem: str = ""


def code_here() -> dict[str, str | None]:
    """Return what has to be the same on both machines; a package that is not installed has no version."""
    state = code_state()
    return {
        "Python": platform.python_version(),
        "torch": version_of("torch"),
        "scalevec": f"{version_of('scalevec')} ({state['source']})",
        "commit of the checkout": state["commit"],
        "code of scalevec": code_name(),
    }


def version_of(package: str) -> str | None:
    """The version of an installed distribution; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def command_of(
    runs_dir: Path, expected: Expected, report: Path, interpreter: Sequence[str] = (sys.executable,)
) -> tuple[str, ...]:
    """Return what the job runs."""
    options = ("--runs", str(runs_dir.resolve()), "--expect", json.dumps(asdict(expected)))
    return (
        *interpreter,
        *PYTHON_MODULE[1:],
        "scalevec.orchestrator.sweep.preflight",
        *options,
        "--report",
        str(report),
    )


def look(runs_dir: Path, expected: Expected) -> list[MachineCheck]:
    """Return all findings on this machine."""
    here = code_here()
    return [
        *(_same(name, here[name], value) for name, value in expected.code.items()),
        _torch(gpus=expected.gpus),
        _compiler(expected.compiles),
        MachineCheck("packages", foreign_package() or ""),
        *(MachineCheck("plugin", problem) for problem in problems_here()),
        _same_folder(runs_dir, expected),
        hard_links(Path(expected.folder)),
        *(_corpus(runs_dir, fingerprint) for fingerprint in expected.corpora),
        _space(runs_dir, expected.free_bytes),
    ]


def _same(name: str, there: str | None, expected: str | None) -> MachineCheck:
    return MachineCheck(name, "" if there == expected else f"{there} there, {expected} here")


def _torch(*, gpus: bool) -> MachineCheck:
    try:
        import torch
    except ImportError as error:
        return MachineCheck("torch", f"cannot be imported there: {error}")
    lacking = gpus and not torch.cuda.is_available()
    return MachineCheck("CUDA", f"torch {torch.__version__} sees no GPU there" if lacking else "")


def _compiler(device: str) -> MachineCheck:
    lacking = missing_compiler(device) if device else ""
    remedy = "load it in the profile's setup, or give compile: never in the sweep's resources"
    problem = f"blocks are to be compiled, and the machine lacks {lacking}: {remedy}"
    return MachineCheck("compiler", problem if lacking else "")


def _same_folder(runs_dir: Path, expected: Expected) -> MachineCheck:
    """Whether the submitter's file is there, with what the submitter wrote into it."""
    path = Path(expected.folder) / "token"
    try:
        token = (read_bytes_if_any(path) or b"").decode(errors="replace")
    except (OSError, CorruptRecordError) as error:
        return MachineCheck("runs directory", f"{runs_dir} is not the same folder there ({error})")
    return MachineCheck(
        "runs directory", "" if token == expected.token else f"{runs_dir} is another folder there"
    )


def hard_links(folder: Path) -> MachineCheck:
    """Results are linked into place: that needs the right to write, and hard links."""
    path = folder / f"link-{secrets.token_hex(4)}"
    try:
        write_once(path, b"first\n")
        try:
            write_once(path, b"second\n")
        except AlreadyWrittenError:
            return MachineCheck("writing")
        finally:
            path.unlink()
    except OSError as error:
        return MachineCheck("writing", f"{folder} takes no files, or no hard links: {error}")
    return MachineCheck("writing", f"{folder}: a link replaced a file that was there")


def _corpus(runs_dir: Path, fingerprint: str) -> MachineCheck:
    try:
        verify(open_corpus(runs_dir / "corpora", fingerprint))
    except (CorpusError, OSError) as error:
        return MachineCheck("corpus", str(error))
    return MachineCheck("corpus")


def _space(runs_dir: Path, needed: int) -> MachineCheck:
    free = shutil.disk_usage(runs_dir).free if runs_dir.is_dir() else 0
    lacking = f"{free / 1e9:.3g} GB are free there, {needed / 1e9:.3g} GB are needed"
    return MachineCheck("space", lacking if free < needed else "")


def main(arguments: list[str] | None = None) -> int:
    """The entry point of the job; 0 where all is well."""
    parser = argparse.ArgumentParser(prog="scalevec.orchestrator.sweep.preflight", description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--expect", type=json.loads, required=True)
    parser.add_argument("--report", type=Path, required=True)
    values = parser.parse_args(arguments)
    expected = Expected(**values.expect)
    checks = look(values.runs, expected)
    ok = not any(check.problem for check in checks)
    for check in checks:
        print(f"{check.name}: {check.problem or 'good'}", flush=True)
    machine = {"host": socket.gethostname(), "node": os.environ.get("SLURMD_NODENAME")}
    summary = {"ok": ok, "free_bytes": expected.free_bytes, **machine}
    write_json(values.report, {**summary, "checks": [asdict(check) for check in checks]})
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
