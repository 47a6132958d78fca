"""``scalevec doctor``: what this machine has of what sweeps need, and the fix for what it lacks."""

import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from scalevec.model.data.system import usable_cpus
from scalevec.model.train.devices import devices_here
from scalevec.orchestrator.cli.options import RUNS, Executor, Runs
from scalevec.orchestrator.cli.output import Result, terminal_width
from scalevec.orchestrator.errors import Exit, explain
from scalevec.orchestrator.sources.sources import check_named_store
from scalevec.orchestrator.worker.preflight import version_of
from scalevec.orchestrator.worker.provenance import code_state
from scalevec.results.extras import REQUIREMENTS, install_command, missing_package, packages_of
from scalevec.results.files import AlreadyWrittenError, cache_folder, write_once

LEAST_BYTES = 10**8
"""Free on the disk of RUNS_DIR, below which even the smallest sweep and its text may not end."""

State = Literal["good", "absent", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: ``absent`` is what only some sweeps need, a ``problem`` what all do."""

    name: str
    state: State
    detail: str
    remedy: str = ""


def _checked(name: str, detail: str, remedy: str) -> Finding:
    """``good``, or a ``problem`` where there is something to do."""
    return Finding(name, "problem" if remedy else "good", detail, remedy)


def doctor(runs_dir: Runs = RUNS, executor: Executor = None) -> Result:
    """Look at all that a sweep needs here: libraries, devices, clusters, disk, store.

    Exit code 3: scalevec run would fail here, or with --executor on that executor.
    """
    findings = [finding for look in _LOOKS for finding in _looked(look, runs_dir)]
    if executor is not None:
        findings = [_needed(finding) if finding.name.lower() == executor else finding for finding in findings]
    failed = any(finding.state == "problem" for finding in findings)
    return Result(
        [asdict(finding) for finding in findings],
        "\n".join(line for finding in findings for line in _lines(finding)),
        Exit.MISSING_REQUIREMENT if failed else Exit.DONE,
    )


def _lines(finding: Finding) -> Iterator[str]:
    """The finding with its remedy, on one line where a terminal is wide enough for it."""
    head = f"{finding.state:<8} {finding.name:<12} "
    both = "; ".join(filter(None, [finding.detail, finding.remedy]))
    if not finding.remedy or len(head + both) <= (terminal_width() or 0):
        yield head + both
    else:
        yield head + finding.detail
        yield f"{'':<21} {finding.remedy}"


def _needed(finding: Finding) -> Finding:
    return finding if finding.state == "good" else Finding(**asdict(finding) | {"state": "problem"})


def _looked(look: "Callable[[Path], Iterator[Finding]]", runs_dir: Path) -> list[Finding]:
    """The findings of ``look``; what it raises is one itself."""
    try:
        return list(look(runs_dir))
    except Exception as error:  # noqa: BLE001 (one broken thing must not hide the others)
        return [Finding(look.__name__.strip("_").replace("_", " "), "problem", explain(error)[0])]


def _python(_: Path) -> Iterator[Finding]:
    yield Finding("Python", "good", platform.python_version())
    yield Finding("scalevec", "good", f"{version_of('scalevec')} ({code_state()['source']})")


def _torch(_: Path) -> Iterator[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Finding("torch", "problem", f"cannot be imported: {error}", install_command("train"))
        return
    from scalevec.orchestrator.executors.local.local_executor import sign_of_gpus

    yield Finding("torch", "good", torch.__version__)
    gpus = [device for device in devices_here() if device.kind == "cuda"]
    shown = ", ".join(f"{gpu.name} ({gpu.memory_bytes / 1e9:,.0f} GB)" for gpu in gpus)
    if gpus:
        yield Finding("GPUs", "good", shown)
    elif sign := sign_of_gpus():
        remedy = "install torch for the CUDA of this driver: https://pytorch.org/get-started"
        yield Finding("GPUs", "warning", f"torch sees none, though there is {sign}", remedy)
    else:
        yield Finding("GPUs", "absent", "none; trials run on the CPU")


def _threads(_: Path) -> Iterator[Finding]:
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    yield Finding("threads", "good", f"{usable_cpus()} of {os.cpu_count()} cores, load {load:.2f} per core")


def _slurm(_: Path) -> Iterator[Finding]:
    from scalevec.orchestrator.executors.slurm import queue

    if shutil.which("sbatch") is None:
        remedy = "for --executor slurm use a machine from which jobs are submitted (sbatch on the PATH)"
        yield Finding("SLURM", "absent", "no sbatch here", remedy)
        return
    try:
        version = queue.configuration().get("SLURM_VERSION", "of an unknown version")
        partitions = queue.call("sinfo", "--noheader", "--format=%P").split()
    except (RuntimeError, OSError) as problem:
        yield Finding(
            "SLURM", "warning", str(problem).splitlines()[0], "ask whether slurmctld is up: scontrol ping"
        )
        return
    yield Finding("SLURM", "good", f"{version}; partitions (* is the default): {', '.join(partitions)}")


def _extras(_: Path) -> Iterator[Finding]:
    for extra in REQUIREMENTS:
        if missing := missing_package(extra):
            yield Finding(extra, "absent", f"no {missing}", install_command(extra))
        else:
            installed = (f"{name} {version_of(name)}" for name in packages_of(extra))
            yield Finding(extra, "good", ", ".join(installed))


def _disk(runs_dir: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(_there(runs_dir)).free
    remedy = "free some space, or keep runs on another disk with --runs" if free < LEAST_BYTES else ""
    yield _checked("disk", f"{free / 1e9:,.1f} GB free for {runs_dir}", remedy)


def _there(runs_dir: Path) -> Path:
    """The nearest folder that exists: nothing is made that stays."""
    return next(path for path in (runs_dir.absolute(), *runs_dir.absolute().parents) if path.is_dir())


def _writing(runs_dir: Path) -> Iterator[Finding]:
    """Results are linked into place: that needs the right to write, and hard links."""
    try:
        with tempfile.TemporaryDirectory(prefix=".scalevec-doctor-", dir=_there(runs_dir)) as folder:
            write_once(Path(folder, "link"), b"first\n")
            write_once(Path(folder, "link"), b"second\n")
            problem = f"{folder}: a link replaced a file that was there"
    except AlreadyWrittenError:
        problem = ""
    except OSError as error:
        problem = f"{_there(runs_dir)} takes no files, or no hard links: {explain(error)[0]}"
    remedy = "keep runs where you may write, on a file system with hard links: --runs" if problem else ""
    yield _checked("writing", problem or "files, and links that never replace one", remedy)


def _store(runs_dir: Path) -> Iterator[Finding]:
    from scalevec.results.index.database import StoreError, named_store

    try:
        check_named_store(runs_dir)
    except StoreError as error:
        yield Finding("store", "problem", str(error), "unset SCALEVEC_STORE to use the index in your cache")
    else:
        yield Finding("store", "good", "answers" if named_store() else "SQLite in the cache folder")
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        remedy = "name another folder: export SCALEVEC_CACHE_DIR=FOLDER"
        yield Finding("cache", "warning", f"{folder}: {error.strerror}", remedy)
    else:
        yield Finding("cache", "good", str(folder))


_LOOKS: tuple[Callable[[Path], Iterator[Finding]], ...] = (
    *(_python, _torch, _threads, _slurm, _disk, _writing, _store, _extras),
)
