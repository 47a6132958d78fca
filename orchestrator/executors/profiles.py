"""Profiles: how a site is asked for machines. Data, kept in the user's folder or beside the sweep file.

Another user may have written what lies beside a sweep file: of that nothing is used that becomes a command,
or says whither code and words go, before a person has agreed to it.
"""

import json
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, Strict, ValidationError

from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors import profile_fields as of
from scalevec.orchestrator.executors.registry import EXECUTORS, ExecutorName
from scalevec.orchestrator.trust import NO_TRUST, Trust, require_trust
from scalevec.sweeps.errors import Problem, SweepError, refused, refused_by_pydantic, shown, unknown
from scalevec.sweeps.yaml_source import SweepSource, read_file

if TYPE_CHECKING:
    from scalevec.sweeps.sections.schema import Sweep

FILE_NAME = "profiles.yaml"
VARIABLE = "SCALEVEC_PROFILES"
"""Names another file than the one in the user's folder."""
INERT = frozenset(
    (
        *("partition", "account", "qos", "constraint", "exclude", "dependency", "time", "time_factor"),
        "max_time",
        *("cpus", "gpus", "memory_gb", "processes", "nodes", "shard", "resources", "autoscale"),
        *("trials_per_job", "trials_per_gpu", "max_parallel", "max_submitted", "max_gpu_hours"),
        *("executor", "poll_s", "notice_s", "preempt"),
    )
)
"""Keys that only say how much is asked for. Of any other key a person is asked, unless the file is theirs."""
FULL_JOB_S = 1800.0
LEAST_MINUTES = 5
"""Of a time limit that follows from an estimate."""


class RungProfile(BaseModel):
    """What the trials of one rung are given; what is not said is left to the sweep file or the site."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    partition: of.Name | None = None
    account: of.Name | None = None
    qos: of.Name | None = None
    constraint: of.Constraint | None = None
    time: of.Minutes = "auto"
    """Minutes of one job, or ``auto``: what its trials are expected to take, times ``time_factor``."""
    time_factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    max_time: of.Longest = None
    """The longest job of the partition: no more is asked for, and a longer trial goes on in another job."""
    memory_gb: of.Positive | None = None
    """``null`` where the site takes no ``--mem``."""
    cpus: of.Count | None = None
    gpus: of.Gpus = None
    """GPUs of each machine, or of a type (``h100:8``), a share of one, or none."""
    processes: of.Count | None = None
    """Processes of each machine, where a trial is trained without GPUs."""
    nodes: of.Count | None = None
    """Machines that train one trial together."""
    shard: bool | None = None
    """Whether the processes of a trial share out its parameters too."""
    trials_per_job: of.PerJob = 1
    """Trials that share one allocation, one after the other; ``auto``: as many as fill half an hour."""
    trials_per_gpu: Annotated[int, Field(ge=1, le=64)] = 1
    """Trials that share one GPU, side by side in one allocation."""
    max_parallel: of.Count | None = None
    """Jobs of one array that run at a time."""
    exclude: Annotated[tuple[of.Nodes, ...], Strict(False)] = ()
    setup: of.Lines = ()
    """Lines of shell that run before the trials, as ``module load`` does."""
    flags: of.Flags = Field(default_factory=dict)
    """Further options of sbatch; those of a rung stand beside the profile's, ``false`` takes one back."""
    dependency: of.Dependency | None = None
    """What has to happen before a job may start, as sbatch takes it."""
    resources: dict[of.Resource, of.Positive] = Field(default_factory=dict)
    """Further resources of Ray by their names, and how much of each a trial takes."""
    python: of.Word | None = None
    """The interpreter that trains; else the one that runs this."""
    launcher: Annotated[tuple[of.Word, ...], Strict(False)] = ()
    """What a trial's command is given to, as ``apptainer exec image.sif``."""


class Profile(RungProfile):
    """One site's settings; every field has a default."""

    executor: ExecutorName | None = None
    max_submitted: of.Count | None = None
    """Jobs in the queue at a time."""
    poll_s: Annotated[float, Field(ge=0.1, le=3600)] = 60.0
    """Seconds between two questions to the queue."""
    notice_s: Annotated[int, Field(ge=10, le=3600)] = 120
    """Seconds before its time limit at which a job is asked to write a checkpoint."""
    preempt: Literal["requeue", "cancel"] = "requeue"
    """Who starts a job again that was interrupted: the cluster, or (``cancel``) the scheduler."""
    private_dir: of.Folder | None = None
    """Folder of the user's, which all nodes see, for what is executed there; else ``~/.scalevec``."""
    address: of.Address | None = None
    """Of a Ray cluster."""
    autoscale: bool = False
    """Whether the Ray cluster grows with demand: then more is asked of it than it has."""
    max_gpu_hours: of.Positive | None = None
    log: Annotated[tuple[of.Name, ...], Strict(False)] = ()
    """What trials are logged to beside the run directories, as ``run --log`` names it."""
    rungs: dict[str, RungProfile] = Field(default_factory=dict)
    _trusted: str = PrivateAttr("")

    @property
    def trusted(self) -> str:
        """The digest of what of it a person agreed to; empty where nobody had to be asked."""
        return self._trusted

    def for_rung(self, rung: str) -> "Profile":
        """This profile with what it says of ``rung`` in place of what it says in general."""
        special = self.rungs.get(rung)
        if special is None:
            return self
        special_fields = {name: getattr(special, name) for name in special.model_fields_set}
        return self.model_copy(update=special_fields | {"flags": {**self.flags, **special.flags}})

    def bundle_size(self, estimates: Iterable[float], nodes: int = 1) -> int:
        """How many trials share an allocation, one after the other or side by side.

        ``estimates`` are the seconds of the trials that are sent with the same request (0: nobody knows), for
        ``nodes`` machines. ``auto`` fills no more of a job than its time limit leaves.
        """
        if self.trials_per_job != "auto":
            return max(self.trials_per_job, self.trials_per_gpu)
        if nodes > 1:
            return 1
        longest = max(estimates, default=0.0) or FULL_JOB_S
        most = (self.max_time or math.inf) / self.time_factor if self.time == "auto" else self.time
        filling = math.floor(self.trials_per_gpu * min(FULL_JOB_S, 60 * most) / longest)
        return max(min(of.MOST_PER_JOB, filling), self.trials_per_gpu)

    def limit_minutes(self, time_s: float | None, estimates: Iterable[float]) -> int:
        """The time limit of a job in whole minutes: this profile's, else what its trials need one by one.

        ``time_s`` is what each of them asks for; None leaves it to the ``estimates`` in seconds.
        """
        if self.time != "auto":
            return math.ceil(min(self.time, self.max_time or math.inf))
        each = sorted((time_s or seconds * self.time_factor for seconds in estimates), reverse=True)
        needed = sum(each[: math.ceil(len(each) / self.trials_per_gpu)])
        minutes = max(LEAST_MINUTES, math.ceil(needed / 60))
        return min(minutes, math.ceil(self.max_time)) if self.max_time else minutes

    @property
    def says_no_memory(self) -> bool:
        """Whether it says that no memory is asked for, or asks for it in another way."""
        by_flag = {"mem-per-cpu", "mem-per-gpu"} & {name for name, value in self.flags.items() if value}
        return bool(by_flag) or ("memory_gb" in self.model_fields_set and self.memory_gb is None)

    def interpreter(self, rung: str) -> tuple[str, ...]:
        """Return the words of the command that starts Python for trials of ``rung``."""
        profile = self.for_rung(rung)
        return (*profile.launcher, profile.python or sys.executable)

    def request(self, rung: str, asked: ResourceRequest) -> ResourceRequest:
        """Return what a job of ``rung`` asks for: what this profile says, else ``asked``."""
        profile = self.for_rung(rung)
        gpus = asked.gpus if profile.gpus is None else _count_of(profile.gpus)
        request = replace(
            asked,
            cpus=profile.cpus or asked.cpus,
            gpus=gpus / profile.trials_per_gpu,
            memory_gb=profile.memory_gb or asked.memory_gb,
            processes=profile.processes or asked.processes,
            nodes=profile.nodes or asked.nodes,
            shard=asked.shard if profile.shard is None else profile.shard,
        )
        require_sound(rung, request, gpus, profile.trials_per_gpu)
        return request


def require_sound(rung: str, request: ResourceRequest, gpus: float, trials_per_gpu: int) -> None:
    """Raise ``InvalidInputError`` where a request for several processes contradicts itself.

    ``gpus`` are those of a job, on each of which so many trials run side by side.
    """
    if trials_per_gpu > 1 and max(gpus, request.nodes) > 1:
        raise InvalidInputError(
            f"{rung}: trials_per_gpu is {trials_per_gpu}, and a trial of this rung takes {gpus:g} GPUs on "
            f"each of {request.nodes} machines; allowed: trials that share a GPU, or that take several"
        )
    if request.gpus and request.processes > 1:
        raise InvalidInputError(
            f"{rung}: processes is {request.processes} and gpus {request.gpus:g}; allowed: one of them, as "
            "each GPU has a process of its own"
        )
    if request.nodes > 1 and 0 < request.gpus < 1:
        raise InvalidInputError(
            f"{rung}: nodes is {request.nodes} and gpus {request.gpus:g}; allowed: whole GPUs on each machine"
        )
    if request.shard and request.world_size == 1:
        raise InvalidInputError(
            f"{rung}: shard is true for a trial of one process; allowed with gpus, processes or nodes above 1"
        )


def _count_of(gpus: float | str) -> float:
    return float(gpus.partition(":")[2]) if isinstance(gpus, str) else gpus


def request_for(sweep: "Sweep", profile: Profile, rung: str) -> ResourceRequest:
    """Return what one attempt at a trial of ``rung`` asks of a machine: the profile before the sweep file.

    It is resolved here, once: the worker's device, the plan and the executors take it from the trial's task.
    """
    resources = sweep.resources_for(rung)
    time_s = None if resources.time == "auto" else 60.0 * resources.time
    asked = ResourceRequest(
        resources.cpus,
        resources.gpus,
        resources.memory_gb,
        time_s,
        resources.processes,
        resources.nodes,
        resources.shard,
    )
    return profile.request(rung, asked)


def load_profile(
    name: str | None,
    beside: Path | None,
    executor: str | None = None,
    otherwise: str | None = None,
    trust: Trust | None = NO_TRUST,
) -> Profile:
    """The profile called ``name``: from the user's own ``profiles.yaml``, else from that in ``beside``.

    Without a name the default profile. It is for ``executor``, else for the one that it names, else for
    ``otherwise``. ``trust`` is what the command was given; None: it is only read, and nothing of it is run.
    Raises ``InvalidInputError`` for a name that neither file holds, with everything that is wrong with the
    profile, for keys that its executor does not honour, and for one that nobody agreed to.
    """
    if name is None:
        return Profile()
    for path in _files(beside):
        source = _read(path)
        if name in source.data:
            profile = _validated(source, name)
            _require_honoured(source, name, profile, executor or profile.executor or otherwise)
            if trust is not None and path != users_own():
                profile._trusted = require_trust(f"{path}, profile {name}", _code(source.data[name]), trust)
            return profile
    names = profile_names(beside)
    if not names:
        looked = " and ".join(str(path) for path in _candidates(beside))
        raise InvalidInputError(f"profile {shown(name)}: there are no profiles; looked for {looked}")
    raise InvalidInputError(f"profile {shown(name)}: {unknown(name, names)}")


def profile_names(beside: Path | None) -> list[str]:
    """Return the names of the profiles in ``beside`` and the user's own. Raises ``InvalidInputError``."""
    return sorted({name for path in _files(beside) for name in _read(path).data})


def _code(given: Any) -> dict[str, bytes]:
    """What of a profile is not inert, by place, as a person is asked about it."""
    sections = {"": given, **{f"rungs.{rung}.": fields for rung, fields in given.get("rungs", {}).items()}}
    code = {}
    for where, fields in sections.items():
        for key in sorted(fields.keys() - INERT - {"rungs"}):
            value = json.dumps(fields[key])
            code[f"{where}{key}: {value}"] = value.encode()
    return code


def users_own() -> Path:
    """The file of the user's own profiles: the one that the environment names, or that in their folder."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else platformdirs.user_config_path("scalevec") / FILE_NAME


def _candidates(beside: Path | None) -> list[Path]:
    return [users_own(), *([beside / FILE_NAME] if beside is not None else [])]


def _files(beside: Path | None) -> list[Path]:
    """A file that the environment names has to be there."""
    return [path for path in _candidates(beside) if path.is_file() or str(path) == os.environ.get(VARIABLE)]


def _read(path: Path) -> SweepSource:
    try:
        source = read_file(path)
    except SweepError as error:
        raise InvalidInputError(str(error)) from None
    if not isinstance(source.data, dict):
        raise InvalidInputError(
            str(source.problem((), refused(source.data, "a mapping of profiles by their names")))
        )
    return source


def _validated(source: SweepSource, name: str) -> Profile:
    try:
        return Profile.model_validate(source.data[name])
    except ValidationError as error:
        problems = (_problem_of(source, name, details) for details in error.errors(include_url=False))
        raise InvalidInputError(str(SweepError(problems))) from None


def _require_honoured(source: SweepSource, name: str, profile: Profile, executor: str | None) -> None:
    """Raise ``InvalidInputError`` with each key that would do nothing on ``executor``."""
    if executor not in EXECUTORS:
        return
    registered = EXECUTORS[executor]
    places: list[tuple[tuple[str, ...], RungProfile, tuple[str, ...] | None]] = [
        ((name,), profile, registered.honours),
        *(
            ((name, "rungs", rung), of_rung, registered.honours_by_rung)
            for rung, of_rung in profile.rungs.items()
        ),
    ]
    problems = [
        source.problem(
            (*path, key), f"executor {executor} does not honour this key; it honours {', '.join(honoured)}"
        )
        for path, section, honoured in places
        if honoured is not None
        for key in sorted(section.model_fields_set - set(honoured))
    ]
    if problems:
        raise InvalidInputError(str(SweepError(problems)))


def _problem_of(source: SweepSource, name: str, details: Any) -> Problem:
    """What pydantic refused, in our words and with its line."""
    path = (name, *(part for part in details["loc"] if part != "[key]"))
    if details["type"] == "profile":
        message = details["ctx"]["message"]
    elif details["type"] == "extra_forbidden":
        fields = RungProfile.model_fields if path[1:-1] else Profile.model_fields
        message = unknown(path[-1], fields, "unknown key")
    else:
        message = refused_by_pydantic(details, {})
    return source.problem(path, message)
