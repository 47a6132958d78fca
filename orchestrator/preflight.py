"""A small job before the grid: is the machine where trials will run like the one they are sent from?

``python -P -m orchestrator.preflight --runs RUNS_DIR --expect JSON --report FILE``
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from model.training.corpora import CorpusError, open_corpus
from orchestrator.errors import Lacking
from orchestrator.executors.base import Ended, Executor, Site
from orchestrator.jobs import Job, Request
from orchestrator.provenance import CHECKOUT, code_state
from results.files import AlreadyWritten, CorruptRecord, read_json, write_atomic, write_json, write_once

PATIENCE_S = 24 * 3600.0
"""The queue may be long."""
TIME_S = 600.0
_TAIL = 2000


@dataclass(frozen=True)
class Expected:
    """What the submitter has, or asks of the machine. ``token`` is the content of a file in ``folder``."""

    python: str
    torch: str
    commit: str | None
    checkout: str
    folder: str
    token: str
    corpora: tuple[str, ...] = ()
    gpus: bool = False
    free_bytes: int = 0


@dataclass(frozen=True)
class Check:
    """One finding; ``problem`` is empty where all is well."""

    name: str
    problem: str = ""


def preflight(
    executor: Executor,
    site: Site,
    *,
    rung: str = "",
    request: Request | None = None,
    corpora: Collection[str] = (),
    free_bytes: int = 0,
    patience_s: float = PATIENCE_S,
) -> None:
    """Send the job, wait for it, and raise ``Lacking`` with a list of what is wrong.

    It asks for what trials of ``rung`` get, so that it comes to the same kind of machine. One that found
    nothing wrong is not repeated for the same code, profile and corpora, unless more space is needed now. To
    be called while ``executor`` has no other jobs.
    """
    request = request or Request()
    folder = site.runs_dir.resolve() / "sweeps" / site.sweep / "preflight"
    ask = {"executor": executor.name, "profile": site.profile.model_dump(mode="json"), "rung": rung}
    expected = _expected(corpora, gpus=request.gpus > 0, free_bytes=free_bytes)
    digest = _digest({**ask, "request": asdict(request), "expected": asdict(replace(expected, free_bytes=0))})
    directory = folder / digest[:16]
    report = directory / "report.json"
    if _passed(report, free_bytes):
        return
    directory.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    write_atomic(directory / "token", token.encode())
    report.unlink(missing_ok=True)
    expected = Expected(**{**asdict(expected), "folder": str(directory), "token": token})
    request = Request(request.cpus, request.gpus, request.memory_gb, TIME_S)
    command = command_of(site.runs_dir, expected, report)
    job = Job(digest, command, directory, "preflight", rung=rung, request=request, estimate_s=TIME_S)
    ended = _await(executor, job, patience_s)
    if problems := _problems(report, job, ended):
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise Lacking(f"the machines of {executor.name} are not ready for the trials:\n{listed}")


def _expected(corpora: Collection[str], *, gpus: bool, free_bytes: int) -> Expected:
    return Expected(
        python=platform.python_version(),
        torch=importlib.metadata.version("torch"),
        commit=code_state()["commit"],
        checkout=str(CHECKOUT),
        folder="",
        token="",
        corpora=tuple(sorted(corpora)),
        gpus=gpus,
        free_bytes=free_bytes,
    )


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _passed(report: Path, free_bytes: int) -> bool:
    try:
        found = read_json(report)
        return bool(found["ok"] and found["free_bytes"] >= free_bytes)
    except (FileNotFoundError, CorruptRecord, KeyError):
        return False


def command_of(runs_dir: Path, expected: Expected, report: Path) -> tuple[str, ...]:
    """What the job runs."""
    options = ("--runs", str(runs_dir.resolve()), "--expect", json.dumps(asdict(expected)))
    return (sys.executable, "-P", "-m", "orchestrator.preflight", *options, "--report", str(report))


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
        return [f"the job that looks at them did not come to its end in time; its log is {job.log}"]
    try:
        checks = read_json(report)["checks"]
    except (FileNotFoundError, CorruptRecord, KeyError):
        said = job.log.read_bytes()[-_TAIL:].decode(errors="replace") if job.log.exists() else ""
        how = ended.message or ended.cause or f"exit code {ended.exit_code}"
        return [f"the job that looks at them left no report ({how}); its log {job.log} says: {said.strip()}"]
    return [f"{check['name']}: {check['problem']}" for check in checks if check["problem"]]


def look(runs_dir: Path, expected: Expected) -> list[Check]:
    """All findings on this machine."""
    return [
        _same("Python", platform.python_version(), expected.python),
        _torch(expected),
        _same("commit of the checkout", code_state()["commit"], expected.commit),
        _same("checkout", str(CHECKOUT), expected.checkout),
        _same_folder(runs_dir, expected),
        _links(Path(expected.folder)),
        *(_corpus(runs_dir, fingerprint) for fingerprint in expected.corpora),
        _space(runs_dir, expected.free_bytes),
    ]


def _same(name: str, found: str | None, expected: str | None) -> Check:
    return Check(name, "" if found == expected else f"{found} there, {expected} here")


def _torch(expected: Expected) -> Check:
    try:
        import torch
    except ImportError as error:
        return Check("torch", f"cannot be imported there: {error}")
    if expected.gpus and not torch.cuda.is_available():
        return Check("CUDA", f"torch {torch.__version__} sees no GPU there")
    return _same("torch", importlib.metadata.version("torch"), expected.torch)


def _same_folder(runs_dir: Path, expected: Expected) -> Check:
    """Whether the submitter's file is there, with what the submitter wrote into it."""
    path = Path(expected.folder) / "token"
    try:
        found = path.read_text()
    except OSError as error:
        return Check("runs directory", f"{runs_dir} is not the same folder there ({error})")
    return Check("runs directory", "" if found == expected.token else f"{runs_dir} is another folder there")


def _links(folder: Path) -> Check:
    """Results are linked into place: that needs the right to write, and hard links."""
    path = folder / f"link-{secrets.token_hex(4)}"
    try:
        write_once(path, b"first\n")
        try:
            write_once(path, b"second\n")
        except AlreadyWritten:
            return Check("writing")
        finally:
            path.unlink()
    except OSError as error:
        return Check("writing", f"{folder} takes no files, or no hard links: {error}")
    return Check("writing", f"{folder}: a link replaced a file that was there")


def _corpus(runs_dir: Path, fingerprint: str) -> Check:
    try:
        open_corpus(runs_dir / "corpora", fingerprint)
    except (CorpusError, OSError) as error:
        return Check("corpus", str(error))
    return Check("corpus")


def _space(runs_dir: Path, needed: int) -> Check:
    free = shutil.disk_usage(runs_dir).free if runs_dir.is_dir() else 0
    lacking = f"{free / 1e9:.3g} GB are free there, {needed / 1e9:.3g} GB are needed"
    return Check("space", lacking if free < needed else "")


def main(
    arguments: list[str] | None = None, say: Callable[[str], None] = lambda text: print(text, flush=True)
) -> int:
    """The entry point of the job; 0 where all is well."""
    parser = argparse.ArgumentParser(prog="orchestrator.preflight", description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--expect", type=json.loads, required=True)
    parser.add_argument("--report", type=Path, required=True)
    values = parser.parse_args(arguments)
    expected = Expected(**{**values.expect, "corpora": tuple(values.expect["corpora"])})
    checks = look(values.runs, expected)
    ok = not any(check.problem for check in checks)
    for check in checks:
        say(f"{check.name}: {check.problem or 'good'}")
    machine = {"host": socket.gethostname(), "node": os.environ.get("SLURMD_NODENAME")}
    found = {"ok": ok, "free_bytes": expected.free_bytes, **machine}
    write_json(values.report, {**found, "checks": [asdict(check) for check in checks]})
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
