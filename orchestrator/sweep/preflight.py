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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from scalevec.model.identity import digest
from scalevec.model.training.corpora.prepare import CorpusError, open_corpus, require_intact
from scalevec.orchestrator.attempts.jobs import PYTHON_MODULE, Job, ResourceRequest
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.base import Ended, Executor, Site
from scalevec.orchestrator.snapshots.snapshot import code_name
from scalevec.orchestrator.worker.provenance import code_state, foreign_package
from scalevec.results.files import (
    AlreadyWrittenError,
    CorruptRecordError,
    read_json,
    write_atomic,
    write_json,
    write_once,
)

PATIENCE_S = 24 * 3600.0
"""The queue may be long."""
TIME_S = 600.0
ROLE = "preflight"
_TAIL = 2000


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


@dataclass(frozen=True)
class MachineCheck:
    """One finding; ``problem`` is empty where all is well."""

    name: str
    problem: str = ""


def preflight(
    executor: Executor,
    site: Site,
    *,
    rung: str = "",
    request: ResourceRequest = ResourceRequest(),  # noqa: B008 (frozen)
    corpora: Collection[str] = (),
    free_bytes: int = 0,
    patience_s: float = PATIENCE_S,
) -> None:
    """Send a preflight job, wait for it, and raise ``MissingRequirementError`` with a list of what is wrong.

    It asks for what trials of ``rung`` get, so that it comes to the same kind of machine. One that
    saw nothing wrong there is not repeated for the same code, profile and corpora, unless more space is
    needed now. To be called while ``executor`` has no other jobs.
    """
    expected = Expected(code_here(), tuple(sorted(corpora)), request.gpus > 0)
    machine = {"executor": executor.name, "profile": site.profile.model_dump(mode="json"), "rung": rung}
    name = digest({**machine, "request": asdict(request), "expected": asdict(expected)})
    directory = site.runs_dir.resolve() / "sweeps" / site.sweep / "preflight" / name[:16]
    report = directory / "report.json"
    if _passed(report, free_bytes):
        return
    directory.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    write_atomic(directory / "token", token.encode())
    report.unlink(missing_ok=True)
    expected = replace(expected, free_bytes=free_bytes, folder=str(directory), token=token)
    command = command_of(site.runs_dir, expected, report)
    request = replace(request, time_s=TIME_S)
    job = Job(name, command, directory, ROLE, rung=rung, request=request, estimate_s=TIME_S, role=ROLE)
    ended = _await(executor, job, patience_s)
    if problems := _problems(report, job, ended):
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise MissingRequirementError(
            f"the machines of {executor.name} are not ready for the trials:\n{listed}"
        )


def code_here() -> dict[str, str | None]:
    """Return what has to be the same on both machines; a package that is not installed has no version."""
    state = code_state()
    return {
        "Python": platform.python_version(),
        "torch": _version("torch"),
        "scalevec": f"{_version('scalevec')} ({state['source']})",
        "commit of the checkout": state["commit"],
        "code of scalevec": code_name(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _passed(report: Path, free_bytes: int) -> bool:
    try:
        earlier = read_json(report, dict)
        return bool(earlier["ok"] and earlier["free_bytes"] >= free_bytes)
    except (FileNotFoundError, CorruptRecordError, KeyError):
        return False


def command_of(runs_dir: Path, expected: Expected, report: Path) -> tuple[str, ...]:
    """Return what the job runs."""
    options = ("--runs", str(runs_dir.resolve()), "--expect", json.dumps(asdict(expected)))
    return (*PYTHON_MODULE, "scalevec.orchestrator.sweep.preflight", *options, "--report", str(report))


def _await(executor: Executor, job: Job, patience_s: float) -> Ended | None:
    """How the job ended; None where it did not within ``patience_s``, and was called off."""
    (number,) = executor.submit([job])
    left = patience_s
    try:
        while left > 0:
            step = min(left, 1.0)
            for ended in executor.wait(step):
                if ended.number == number:
                    return ended
            left -= step
    except BaseException:
        executor.cancel([number])
        raise
    executor.cancel([number])
    return None


def _problems(report: Path, job: Job, ended: Ended | None) -> list[str]:
    if ended is None:
        return [f"the preflight job did not end in time; its log is {job.log}"]
    try:
        checks = read_json(report, dict)["checks"]
    except (FileNotFoundError, CorruptRecordError, KeyError):
        printed = job.log.read_bytes()[-_TAIL:].decode(errors="replace") if job.log.exists() else ""
        how = ended.message or ended.cause or f"exit code {ended.exit_code}"
        return [f"the preflight job left no report ({how}); its log {job.log} ends: {printed.strip()}"]
    return [f"{check['name']}: {check['problem']}" for check in checks if check["problem"]]


def look(runs_dir: Path, expected: Expected) -> list[MachineCheck]:
    """Return all findings on this machine."""
    here = code_here()
    return [
        *(_same(name, here[name], value) for name, value in expected.code.items()),
        _torch(gpus=expected.gpus),
        MachineCheck("packages", foreign_package() or ""),
        _same_folder(runs_dir, expected),
        _links(Path(expected.folder)),
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


def _same_folder(runs_dir: Path, expected: Expected) -> MachineCheck:
    """Whether the submitter's file is there, with what the submitter wrote into it."""
    path = Path(expected.folder) / "token"
    try:
        token = path.read_text()
    except OSError as error:
        return MachineCheck("runs directory", f"{runs_dir} is not the same folder there ({error})")
    return MachineCheck(
        "runs directory", "" if token == expected.token else f"{runs_dir} is another folder there"
    )


def _links(folder: Path) -> MachineCheck:
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
        require_intact(open_corpus(runs_dir / "corpora", fingerprint))
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
