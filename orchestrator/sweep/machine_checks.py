"""Preflight jobs: one for each kind of machine that trials will go to, sent together and answered once."""

import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scalevec.model.identity import digest
from scalevec.orchestrator.attempts.jobs import Job, ResourceRequest
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.base import Ended, Executor, Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.sweep.preflight import Expected, code_here, command_of
from scalevec.results.files import CorruptRecordError, read_bytes_if_any, read_json, write_atomic
from scalevec.results.opening import end_of_log, make_folder, remove_folder
from scalevec.results.run_directory import RunDirectory, user_name

PATIENCE_S = 24 * 3600.0
"""The queue may be long."""
TIME_S = 600.0
DAY_S = 24 * 3600.0
"""How long an answer is good for."""
ROLE = "preflight"
SWEEP = "sweep"
"""The file beside a report that names the sweep for which it was asked for."""
SPACE = "free_bytes"
"""The file beside it that has how many bytes have to be free."""
REPORT = "report.json"
_KIND_OF_MACHINE = frozenset(
    (
        *("partition", "account", "qos", "constraint", "exclude", "gpus"),
        *("setup", "flags", "python", "launcher"),
    )
)
"""The fields of a profile that decide to which machines a job goes, and what it finds there."""
_OF_THE_INTERPRETER = ("Python", "torch")
"""What may differ where the profile names another interpreter."""
_TAIL = 2000
NOTHING_SPECIAL = ResourceRequest()


@dataclass(frozen=True)
class Machine:
    """A kind of machine: a rung whose trials go there, what they ask for, for which device they compile."""

    rung: str = ""
    request: ResourceRequest = NOTHING_SPECIAL
    compiles: str = ""


@dataclass(frozen=True)
class SentCheck:
    """A preflight job; ``number`` is that of the executor."""

    machine: Machine
    job: Job
    report: Path
    number: str
    is_shared: bool = False
    """Whether an earlier run sent it, so that other trials may wait behind it: it is not called off."""


def settings_of(profile: Profile, machine: Machine) -> str:
    """Return what tells this kind of machine from others."""
    request = replace(machine.request, time_s=None)
    kind = profile.for_rung(machine.rung).model_dump_json(include=set(_KIND_OF_MACHINE))
    return f"{kind}{request!r}{machine.compiles}"


def preflight(
    executor: Executor,
    site: Site,
    machines: Sequence[Machine] = (Machine(),),
    *,
    corpora: Collection[str] = (),
    free_bytes: int = 0,
    patience_s: float = PATIENCE_S,
) -> None:
    """Send the checks that have no answer yet, wait for all of them, and raise with all that is wrong.

    To be called while ``executor`` has no other jobs. Raises ``MissingRequirementError``.
    """
    checks = send_checks(executor, site, machines, corpora=corpora, free_bytes=free_bytes)
    waiting = {check.number: check for check in checks}
    try:
        ends = _awaited(executor, waiting, patience_s)
    except BaseException:
        executor.cancel(list(waiting))
        raise
    several = len(machines) > 1
    problems = [problem for number in ends for problem in problems_of(waiting[number], ends[number], several)]
    require_ready(executor.name, problems)


def require_ready(executor: str, problems: Sequence[str]) -> None:
    """Raise ``MissingRequirementError`` with what is wrong with the machines."""
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise MissingRequirementError(f"the machines of {executor} are not ready for the trials:\n{listed}")


def send_checks(
    executor: Executor,
    site: Site,
    machines: Sequence[Machine],
    *,
    corpora: Collection[str] = (),
    free_bytes: int = 0,
) -> list[SentCheck]:
    """Send a preflight job to each kind of machine, those that a job of the last day found good left out.

    One that an earlier run has sent, and that waits or runs yet, is not sent again.

    A job asks for what trials get, so that it comes to the same kind of machine. An answer counts for the
    same code, interpreter, partition, setup and corpora, whichever sweep asked, unless more space is needed
    now.
    """
    jobs: list[tuple[Machine, Job, Path]] = []
    earlier: list[SentCheck] = []
    for machine in machines:
        expected = _expected(site.profile.for_rung(machine.rung), machine, corpora)
        folder = _folder(executor.name, site, machine, expected)
        if _passed(folder, free_bytes):
            continue
        if sent := _sent_before(executor, machine, folder, free_bytes):
            earlier.append(sent)
        else:
            jobs.append((machine, *_job(site, machine, replace(expected, free_bytes=free_bytes), folder)))
    numbers = executor.submit([job for _, job, _ in jobs]) if jobs else []
    return [*earlier, *(SentCheck(*job, number) for job, number in zip(jobs, numbers, strict=True))]


def _sent_before(executor: Executor, machine: Machine, folder: Path, free_bytes: int) -> SentCheck | None:
    """The preflight job of an earlier run of this user that waits or runs yet and looks for as much space."""
    for directory in folder.glob("*"):
        report = directory / REPORT
        with suppress(CorruptRecordError, ValueError):
            if report.exists() or int(read_bytes_if_any(directory / SPACE) or 0) < free_bytes:
                continue
            for sent in RunDirectory(directory).open_jobs():
                if sent["user"] == user_name() and executor.adopt([sent["job"]]):
                    job = Job(directory.name, (), directory, ROLE, rung=machine.rung)
                    return SentCheck(machine, job, report, sent["job"], is_shared=True)
    return None


def _expected(profile: Profile, machine: Machine, corpora: Collection[str]) -> Expected:
    code: Mapping[str, str | None] = code_here()
    if profile.python or profile.launcher:
        code = {name: value for name, value in code.items() if name not in _OF_THE_INTERPRETER}
    gpus = machine.request.gpus > 0
    return Expected(code, tuple(sorted(corpora)), gpus, compiles=machine.compiles)


def _folder(executor: str, site: Site, machine: Machine, expected: Expected) -> Path:
    """Where the answers for this kind of machine are kept, one folder an attempt."""
    interpreter = site.profile.interpreter(machine.rung)
    kind: dict[str, Any] = {"executor": executor, "address": site.profile.address, "interpreter": interpreter}
    kind |= {"settings": settings_of(site.profile, machine), "expected": asdict(expected)}
    return site.runs_dir.resolve() / ROLE / digest(kind)[:16]


def _passed(folder: Path, free_bytes: int) -> bool:
    """Whether a report of the last day says that all is well, and that there was as much space."""
    for report in folder.glob(f"*/{REPORT}"):
        try:
            is_recent = time.time() - report.lstat().st_mtime < DAY_S
            earlier = read_json(report, dict)
            if is_recent and earlier["ok"] and earlier["free_bytes"] >= free_bytes:
                return True
        except (OSError, CorruptRecordError, KeyError, TypeError):
            continue
    return False


def _job(site: Site, machine: Machine, expected: Expected, folder: Path) -> tuple[Job, Path]:
    """The job and the report that it will write, in a folder of its own."""
    for earlier in folder.glob("*"):
        if time.time() - earlier.lstat().st_mtime > 2 * DAY_S:
            remove_folder(earlier)
    token = secrets.token_hex(8)
    directory = folder / token
    make_folder(directory)
    write_atomic(directory / "token", token.encode())
    write_atomic(directory / SWEEP, site.sweep.encode())
    write_atomic(directory / SPACE, str(expected.free_bytes).encode())
    report = directory / REPORT
    expected = replace(expected, folder=str(directory), token=token)
    command = command_of(site.runs_dir, expected, report, site.profile.interpreter(machine.rung))
    request = replace(machine.request, time_s=TIME_S, nodes=1)
    name = digest({ROLE: token})
    job = Job(
        name, command, directory, ROLE, rung=machine.rung, request=request, estimate_s=TIME_S, role=ROLE
    )
    return job, report


def checks_of(sweep: str, runs_dir: Path) -> list[RunDirectory]:
    """Return where the preflight jobs are kept that were sent for ``sweep`` in the last days."""
    files = (runs_dir / ROLE).glob(f"*/*/{SWEEP}")
    return [RunDirectory(file.parent) for file in files if _names(file, sweep)]


def _names(file: Path, sweep: str) -> bool:
    with suppress(CorruptRecordError):
        return read_bytes_if_any(file) == sweep.encode()
    return False


def _awaited(
    executor: Executor, waiting: Mapping[str, SentCheck], patience_s: float
) -> dict[str, Ended | None]:
    """How the jobs ended; None for those that did not within ``patience_s``, and were called off."""
    ends: dict[str, Ended | None] = dict.fromkeys(waiting)
    left = patience_s
    while left > 0 and None in ends.values():
        step = min(left, 1.0)
        ends |= {ended.number: ended for ended in executor.wait(step) if ended.number in waiting}
        left -= step
    if left_over := [number for number, ended in ends.items() if ended is None]:
        executor.cancel(left_over)
    return ends


def was_interrupted(check: SentCheck, ended: Ended) -> bool:
    """Return whether a preflight job left no report for no reason of its machine's."""
    return ended.cause in ("preempted", "node_failure") and not check.report.exists()


def problems_of(check: SentCheck, ended: Ended | None, several: bool) -> list[str]:
    """Return what a preflight job found wrong, with its rung where ``several`` kinds are looked at."""
    where = f"rung {check.machine.rung}: " if several else ""
    return [f"{where}{problem}" for problem in _problems(check.report, check.job, ended)]


def _problems(report: Path, job: Job, ended: Ended | None) -> list[str]:
    if ended is None:
        return [f"the preflight job did not end in time; its log is {job.log}"]
    try:
        checks = read_json(report, dict)["checks"]
    except (FileNotFoundError, CorruptRecordError, KeyError):
        printed = end_of_log(job.log, _TAIL)
        how = ended.message or ended.cause or f"exit code {ended.exit_code}"
        return [f"the preflight job left no report ({how}); its log {job.log} ends: {printed.strip()}"]
    return [f"{check['name']}: {check['problem']}" for check in checks if check["problem"]]
