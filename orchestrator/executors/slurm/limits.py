"""How many jobs a user may have in SLURM's queue: what cluster, profile and accounting say, and sbatch."""

import getpass
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm.queue import SlurmCommandError
from scalevec.results.files import CorruptRecordError, read_json, write_json

KEPT_S = 3600.0
"""How long an answer of the accounting counts. Each takes a quarter of a second, for which a first submission
would wait; where a limit has changed since, SLURM refuses a job, and it is sent later."""


_Rows = list[list[str]]
_ASKED = {
    "associations": ("Account", "DefaultQOS", "MaxSubmitJobs"),
    "qos": ("Name", "MaxSubmitJobsPU", "MaxSubmitJobsPA", "GrpSubmit"),
}
"""What is asked of the accounting, with the fields of each row."""


def largest_array(settings: Mapping[str, str]) -> int:
    """How many tasks one array may have."""
    limits = [int(settings.get("MaxArraySize", "1001"))]
    limits += [int(n) for n in re.findall(r"max_array_tasks=(\d+)", settings.get("SchedulerParameters", ""))]
    return max(1, min(limits))


@dataclass(frozen=True)
class SubmitLimit:
    """The most jobs that this user may have in the queue under an ``account`` or a ``qos``.

    It ``is_certain`` where it is known that the jobs in question are sent under that name.
    """

    field: str
    name: str
    most: int
    is_certain: bool


def most_submitted(settings: Mapping[str, str], profile: Profile, limits: Sequence[SubmitLimit]) -> int:
    """How many jobs may be in the queue at a time.

    The profile's word; else half of what the cluster holds, and below the ``limits`` that the accounting has
    for this user, of which the controller's own job takes one.
    """
    if profile.max_submitted:
        return profile.max_submitted
    return max(
        1, min([int(settings.get("MaxJobCount", "10000")) // 2, *(limit.most - 1 for limit in limits)])
    )


def limits_of_user(profile: Profile, kept: Path) -> list[SubmitLimit]:
    """The limits of the associations and qualities of service that jobs would be submitted under.

    None are asked for where the profile itself says how many jobs may wait.

    Args:
        profile: Accounts and qualities of service.
        kept: The file in which the accounting's answer is kept for KEPT_S.
    """
    if profile.max_submitted:
        return []
    asked = (profile, *profile.rungs.values())
    accounts = {given.account for given in asked if given.account}
    qualities = {given.qos: True for given in asked if given.qos}
    rows, of_qualities = _accounting(kept)
    limits: list[tuple[str, str, str, bool]] = []
    for account, default, limit in rows:
        if not accounts or account in accounts:
            is_certain = len(rows) == 1 or len(accounts) == 1
            if default:
                qualities.setdefault(default, is_certain and not qualities)
            limits.append(("account", account, limit, is_certain))
    for name, *of_quality in of_qualities:
        if name in qualities:
            limits += [("qos", name, limit, qualities[name]) for limit in of_quality]
    return [
        SubmitLimit(field, name, int(limit), is_certain)
        for field, name, limit, is_certain in limits
        if limit.isdecimal()
    ]


def kept_in(private: Path, cluster: str) -> Path:
    """Where the limits of this user on ``cluster`` are kept, in the private folder."""
    return private / f"limits.{cluster}.json"


def _accounting(kept: Path) -> tuple[_Rows, _Rows]:
    """The associations of this user, and all qualities of service; no rows where the accounting is silent."""
    with suppress(OSError, CorruptRecordError):
        if 0 <= time.time() - kept.stat().st_mtime < KEPT_S:
            earlier = read_json(kept, dict)
            if all(_are_rows(earlier.get(what), fields) for what, fields in _ASKED.items()):
                return earlier["associations"], earlier["qos"]
    with ThreadPoolExecutor(len(_ASKED)) as pool:
        answer = dict(zip(_ASKED, pool.map(_shown, _ASKED), strict=True))
    if all(answer.values()):
        with suppress(OSError):  # it only spares time
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_json(kept, answer)
    return answer["associations"], answer["qos"]


def _are_rows(value: object, fields: Sequence[str]) -> bool:
    rows = value if isinstance(value, list) else [None]
    return all(isinstance(row, list) and list(map(type, row)) == [str] * len(fields) for row in rows)


def _shown(what: str) -> _Rows:
    """Rows that the accounting shows; none where there is no accounting, or none that answers."""
    which = [f"user={getpass.getuser()}"] if what == "associations" else []
    options = ["--noheader", "--parsable2", "show", what, *which, f"format={','.join(_ASKED[what])}"]
    try:
        text = slurm_queue.call("sacctmgr", *options)
    except (SlurmCommandError, MissingRequirementError):
        return []
    return slurm_queue.table(text, len(_ASKED[what]))


class QueueRoom:
    """Asks the queue at most every ``look_every_s`` seconds, and never where there is no limit."""

    def __init__(self, limits: Sequence[SubmitLimit], look_every_s: float) -> None:
        self.limits = [limit for limit in limits if limit.is_certain]
        self.look_every_s = look_every_s
        self._queued: Counter[tuple[str, str]] = Counter()
        self._sent = 0
        self._next_look = 0.0
        self._at_most: int | None = None

    @property
    def jobs(self) -> int | None:
        """Jobs that would be taken now, as far as anybody knows; None for any number."""
        room = [self._at_most] if self._at_most is not None else []
        if self.limits:
            self._look()
            room += [limit.most - self._queued[limit.field, limit.name] - self._sent for limit in self.limits]
        return max(0, min(room)) if room else None

    def _look(self) -> None:
        if time.monotonic() < self._next_look:
            return
        with suppress(slurm_queue.SlurmCommandError):  # what was known counts until the queue answers
            self._queued, self._sent = slurm_queue.jobs_of_this_user(), 0
        self._next_look = time.monotonic() + self.look_every_s

    def accepted(self, jobs: int) -> None:
        """SLURM has taken so many."""
        self._sent += jobs
        self._at_most = None

    def refused(self, jobs: int) -> None:
        """SLURM has not taken so many: half of them are tried next."""
        self._at_most = max(1, jobs // 2)
        self._next_look = 0.0
