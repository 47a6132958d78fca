"""Limits of SLURM: of its partitions and of its queue; and a profile for a cluster that has none yet."""

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError
from scalevec.orchestrator.executors.profiles import Profile, RungProfile
from scalevec.orchestrator.executors.slurm.queue import SlurmCommandError, accounts_of_user, call, table

_FIELDS = ("%P", "%l", "%D", "%c", "%m", "%G")
_GPUS = re.compile(r"gpu:(?:([A-Za-z0-9_.-]*[A-Za-z][A-Za-z0-9_.-]*):)?(\d+)")
_DAY_MINUTES = 24 * 60
PROBE_S = 600.0
"""Seconds after a refusal, or a try of more, until more is tried again."""


@dataclass(frozen=True)
class Partition:
    """One kind of node of a partition; ``minutes`` is its limit for a job, None where it has none."""

    name: str
    is_default: bool
    minutes: float | None
    nodes: int
    cpus: int
    memory_mb: int
    gpus: int
    gpu_type: str

    @property
    def words(self) -> str:
        """Its nodes and limit for a person."""
        gpus = f", {self.gpus} {self.gpu_type or 'GPUs'}" if self.gpus else ""
        limit = f", at most {_clock(self.minutes)}" if self.minutes else ""
        return f"{self.nodes} nodes of {self.cpus} cores, {self.memory_mb / 1024:.0f} GB{gpus}{limit}"


def partitions(*, hidden: bool = False) -> list[Partition]:
    """Return the partitions that this user may use, a line for each kind of node; ``hidden`` ones too.

    Raises ``SlurmCommandError``, or ``MissingRequirementError`` where there is no SLURM.
    """
    which = ["--all"] if hidden else []
    text = call("sinfo", "--noheader", *which, f"--format={'|'.join(_FIELDS)}")
    return [_partition(row) for row in table(text, len(_FIELDS))]


def _partition(row: Sequence[str]) -> Partition:
    name, limit, nodes, cpus, memory, resources = row
    of_gpus = _GPUS.search(resources)
    return Partition(
        name=name.rstrip("*"),
        is_default=name.endswith("*"),
        minutes=_minutes(limit),
        nodes=_count(nodes),
        cpus=_count(cpus),
        memory_mb=_count(memory),
        gpus=int(of_gpus[2]) if of_gpus else 0,
        gpu_type=(of_gpus[1] or "") if of_gpus else "",
    )


def _count(text: str) -> int:
    """A number of sinfo, which writes ``64+`` where nodes differ."""
    return int(re.sub(r"\D", "", text) or 0)


def _minutes(limit: str) -> float | None:
    """Minutes of ``1-00:00:00``, ``24:00:00`` or ``30:00``; None for one that is no time, as ``infinite``."""
    clock = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if not clock:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
    return days * _DAY_MINUTES + 60 * hours + minutes + seconds / 60


def _clock(minutes: float) -> str:
    whole = math.floor(minutes)
    days, rest = divmod(whole, _DAY_MINUTES)
    return f"{f'{days}-' if days else ''}{rest // 60:02}:{rest % 60:02}:00"


def _word(text: str) -> str:
    """``text`` as YAML: quoted where it would be read as anything but a word."""
    is_plain = re.fullmatch(r"[A-Za-z_][\w.-]*", text) and text.lower() not in ("null", "true", "false")
    return text if is_plain else json.dumps(text)


def refuse_unknown_partitions(profile: Profile) -> None:
    """Raise ``InvalidInputError`` for a partition of ``profile`` or of its rungs that SLURM does not have.

    The controller runs elsewhere than its trials, so that sbatch would refuse these when nobody looks.
    """
    asked = {name for each in (profile, *profile.rungs.values()) for name in _names(each)}
    try:
        known = {partition.name for partition in partitions(hidden=True)}
    except SlurmCommandError:
        return
    if unknown := sorted(asked - known):
        raise InvalidInputError(
            f"partition is {unknown[0]!r}, which SLURM does not have; allowed: {', '.join(sorted(known))}"
        )


def with_limits(profile: Profile) -> Profile:
    """Return ``profile`` with the limits of its partitions as ``max_time``, where it does not say any itself.

    A rung with a partition of its own has the limit of that one. Where SLURM cannot be asked, as on another
    machine, the profile stays as it is.
    """
    elsewhere = [name for name, rung in profile.rungs.items() if rung.partition and rung.max_time is None]
    if profile.max_time is not None and not elsewhere:
        return profile
    try:
        known = partitions()
    except (SlurmCommandError, MissingRequirementError):
        return profile

    def limit(part: RungProfile) -> dict[str, float | None]:
        return {"max_time": _limit(known, _names(part))}

    special = {name: profile.rungs[name].model_copy(update=limit(profile.rungs[name])) for name in elsewhere}
    general = limit(profile) if profile.max_time is None else {}
    return profile.model_copy(update={"rungs": {**profile.rungs, **special}, **general})


def _names(part: RungProfile) -> list[str]:
    return [name for name in (part.partition or "").split(",") if name]


def _limit(known: Sequence[Partition], names: Sequence[str]) -> float | None:
    """The longest job of the partitions ``names``, else of the default one; None where one has no limit."""
    limits = [each.minutes for each in known if (each.name in names if names else each.is_default)]
    return max((limit for limit in limits if limit), default=None) if all(limits) else None


def profile_text(name: str) -> str:
    """Return a profile of this cluster as YAML, with a comment for each line.

    Raises ``MissingRequirementError`` where there is no SLURM, or none that answers.
    """
    try:
        known = partitions()
    except SlurmCommandError as problem:
        raise MissingRequirementError(f"SLURM does not answer: {problem}") from None
    if not known:
        raise MissingRequirementError("sinfo shows no partition that you may use")
    return "\n".join(_profile_lines(name, known)) + "\n"


def _profile_lines(name: str, known: Sequence[Partition]) -> Iterator[str]:
    chosen = max(known, key=lambda each: (each.gpus > 0, each.is_default, each.nodes))
    small = max((each for each in known if not each.gpus), key=lambda each: each.is_default, default=chosen)
    share = max(chosen.gpus, 1)
    lines = [("executor: slurm", "")]
    lines.append((f"partition: {_word(chosen.name)}", chosen.words))
    if chosen.minutes:
        # In quotes: YAML 1.1 reads 20:00:00 as a number in base 60.
        limit = json.dumps(_clock(chosen.minutes))
        lines.append((f"max_time: {limit}", "a longer trial goes on in another job"))
    accounts = accounts_of_user()
    if accounts:
        lines.append((f"account: {_word(accounts[0])}", f"of yours: {', '.join(accounts)}"))
    if chosen.gpus:
        lines.append(("gpus: 1", "of a machine, with a process each; below 1 a share of one"))
        lines.append((f"cpus: {max(1, chosen.cpus // share)}", f"of a process: {chosen.cpus} / {share}"))
        memory_gb = math.floor(chosen.memory_mb / 1024 / share)
        lines.append((f"memory_gb: {max(1, memory_gb)}", "of a process; null where the site takes no --mem"))
    lines.append(("trials_per_job: auto", "short trials share a job of half an hour"))
    lines.append(("# setup: module load cuda", "lines of shell before the trials"))
    others = sorted({each.name for each in known} - {chosen.name})
    if others:
        lines.append((f"# other partitions: {', '.join(others)}", ""))
    lines.append(("rungs:", ""))
    of_controller = f"  controller: {{partition: {_word(small.name)}}}"
    lines.append((of_controller, "a job of one core, which sends the trials"))
    width = max(len(line) for line, comment in lines if comment)
    yield f"{_word(name)}:"
    for line, comment in lines:
        yield f"  {line:<{width}}  # {comment}" if comment else f"  {line}"


def largest_array(settings: Mapping[str, str]) -> int:
    """How many tasks one array may have."""
    limits = [int(settings.get("MaxArraySize", "1001"))]
    limits += [int(n) for n in re.findall(r"max_array_tasks=(\d+)", settings.get("SchedulerParameters", ""))]
    return max(1, min(limits))


def most_submitted(settings: Mapping[str, str], profile: Profile) -> int:
    """How many jobs may be in the queue at a time: what the profile says, else half of the cluster's."""
    return profile.max_submitted or max(1, int(settings.get("MaxJobCount", "10000")) // 2)


class QueueRoom:
    """How many jobs of one executor the queue takes: ``most``, until it refuses some.

    A user, an account and a quality of service may each have a limit, which others use up too: none is asked
    for. What was refused is halved, and a quarter more is tried every PROBE_S.
    """

    def __init__(self, most: int) -> None:
        self.most = self._taken = most
        self._probe_at = 0.0

    def free(self, in_queue: int) -> int:
        """How many more are tried now beside those ``in_queue``."""
        if self._taken < self.most and time.monotonic() >= self._probe_at:
            self._taken = min(self.most, self._taken + max(1, self._taken // 4))
            self._probe_at = time.monotonic() + PROBE_S
        return self._taken - in_queue

    def refused(self, jobs: int, in_queue: int) -> None:
        """SLURM has not taken so many beside those ``in_queue``."""
        self._taken = max(1, in_queue + jobs // 2)
        self._probe_at = time.monotonic() + PROBE_S
