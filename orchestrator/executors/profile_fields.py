"""The values of a profile's keys: none but a line of ``setup`` reaches a shell as more than a word."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, Strict
from pydantic_core import PydanticCustomError

from scalevec.sweeps.errors import DEVICES, refused, shown


def profile_problem(message: str) -> PydanticCustomError:
    """What a validator of profiles raises."""
    return PydanticCustomError("profile", "{message}", {"message": message})


def _text(pattern: str, allowed: str) -> AfterValidator:
    """A text that is wholly of ``pattern``; ``allowed`` says it to a person."""

    def checked(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise profile_problem(refused(value, allowed))
        return value

    return AfterValidator(checked)


MOST_GPUS = 4096
MOST_PER_JOB = 1000
_TEXT = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.,:=/@+ -]{0,198}[A-Za-z0-9_.,:=/@+-])?")
GPU_TYPE = re.compile(r"(?=[A-Za-z0-9_.-]*[A-Za-z])[A-Za-z0-9][A-Za-z0-9_.-]{0,40}:(\d+)")
"""Also a part of one, as ``1g.10gb:1``."""
CLOCK = re.compile(r"(?:(\d{1,3})-)?(\d{1,4}):(\d{2})(?::(\d{2}))?")
"""``24:00:00``, ``2-00:00:00``, ``2-00:00``: as sbatch takes a time, with days or seconds."""
_OWN_FLAGS = {
    **{name: name for name in ("partition", "account", "qos", "constraint", "time", "exclude", "dependency")},
    "mem": "memory_gb",
    "cpus-per-task": "cpus",
    "gpus-per-node": "gpus",
}
_RAYS_OWN = {"CPU": "cpus", "GPU": "gpus", "memory": "memory_gb"}
_RESERVED_FLAGS = (
    *("array", "job-name", "output", "error", "open-mode", "signal", "requeue", "no-requeue", "wrap"),
    *("export", "export-file", "chdir", "nodes", "ntasks", "ntasks-per-node", "hold", "wait"),
    *("parsable", "test-only", "input", "cluster-constraint", "clusters", "cpus-per-gpu"),
    *("help", "version", "usage"),
)


def _minutes(value: Any) -> Any:
    if isinstance(value, str) and (clock := CLOCK.fullmatch(value)) and (clock[1] or clock[4]):
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        value = 60 * (24 * days + hours) + minutes + seconds / 60
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value != "auto" and not (is_number and 0 < value < 1e7):
        raise profile_problem(
            refused(value, "auto, a positive number of minutes, or a time as 24:00:00 or 2-00:00:00")
        )
    return value if value == "auto" else float(value)


def _longest(value: Any) -> Any:
    """A time that is not left open."""
    if value == "auto":
        raise profile_problem(refused(value, "a positive number of minutes, or a time as 20:00:00"))
    return None if value is None else _minutes(value)


def _lines(value: Any) -> Any:
    """Lines of shell, from a list or one text with line breaks."""
    return [line for line in value.splitlines() if line.strip()] if isinstance(value, str) else value


def _gpus(value: Any) -> Any:
    """Whole GPUs, a share of one, or none; ``TYPE:COUNT`` for those of a type."""
    if isinstance(value, str):
        typed = GPU_TYPE.fullmatch(value)
        if typed and 1 <= int(typed[1]) <= MOST_GPUS:
            return value
        raise profile_problem(refused(value, f"{DEVICES}, or those of a type, as h100:8 or 1g.10gb:1"))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MOST_GPUS or (value > 1 and value != int(value)):
        raise profile_problem(refused(value, DEVICES))
    return float(value)


def _per_job(value: Any) -> Any:
    if value != "auto" and (type(value) is not int or not 1 <= value <= MOST_PER_JOB):
        raise profile_problem(refused(value, f"auto, or a whole number from 1 to {MOST_PER_JOB}"))
    return value


def _flag_value(value: Any) -> Any:
    is_text = isinstance(value, str) and _TEXT.fullmatch(value)
    if is_text or isinstance(value, bool | int):
        return value
    allowed = "true, a whole number, or letters, digits, spaces and signs of _ . , : = / @ + -"
    raise profile_problem(refused(value, allowed))


def _not_ours(name: str) -> str:
    if name in _OWN_FLAGS:
        raise profile_problem(f"{shown(name)} has a field of its own: {_OWN_FLAGS[name]}")
    if name in _RESERVED_FLAGS:
        raise profile_problem(f"{shown(name)} is set by scalevec itself")
    return name


def _no_other_field(name: str) -> str:
    if name in _RAYS_OWN:
        raise profile_problem(f"{shown(name)} has a field of its own: {_RAYS_OWN[name]}")
    return name


_CONDITION = r"(after|afterany|afterok|afternotok|aftercorr)(:[0-9]+(_[0-9]+)?(\+[0-9]+)?)+|singleton"
Name = Annotated[
    str, _text(r"[A-Za-z0-9_][A-Za-z0-9_.,:=/@+-]{0,199}", "letters, digits and signs of _ . , : = / @ + -")
]
Nodes = Annotated[str, _text(r"[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]{0,199}", "names of nodes, as n1 or n[1-4]")]
Word = Annotated[str, _text(r"[^\s\x00-\x1f\x7f]{1,1000}", "one word of a command for each entry")]
Resource = Annotated[
    str,
    _text(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}", "letters, digits and signs of _ . : -"),
    AfterValidator(_no_other_field),
]
Folder = Annotated[str, _text(r"[~/][^\x00-\x1f\x7f]{0,999}", "an absolute path, or one that begins with ~/")]
Line = Annotated[str, _text(r"[^\n\r\x00]*", "one line of shell for each entry")]
Lines = Annotated[tuple[Line, ...], Strict(False), BeforeValidator(_lines)]
Flag = Annotated[
    str,
    _text(r"[a-z][a-z0-9-]{1,40}", "the long name of an option of sbatch, without the dashes"),
    AfterValidator(_not_ours),
]
Minutes = Annotated[float | Literal["auto"], PlainValidator(_minutes)]
Longest = Annotated[float | None, PlainValidator(_longest)]
PerJob = Annotated[int | Literal["auto"], PlainValidator(_per_job)]
Gpus = Annotated[float | str | None, PlainValidator(_gpus)]
Flags = dict[Flag, Annotated[str | int, PlainValidator(_flag_value)]]
Constraint = Annotated[
    str,
    _text(r"[A-Za-z0-9_(\[][A-Za-z0-9_.,:&|*()\[\]+-]{0,199}", "features joined by signs of & | * ( ) [ ]"),
]
Dependency = Annotated[
    str,
    _text(
        rf"({_CONDITION})(,({_CONDITION}))*",
        "conditions of sbatch joined by commas, as afterok:123 or singleton",
    ),
]
Address = Annotated[
    str, _text(r"[A-Za-z0-9\[][A-Za-z0-9_.:\[\]-]{0,199}", "HOST:PORT of the head of a Ray cluster, or auto")
]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Positive = Annotated[float, Field(gt=0)]
