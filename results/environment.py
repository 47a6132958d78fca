"""Which machine and which code trained a trial: from its environment.json to the columns of its row."""

from collections.abc import Mapping, Sequence
from typing import Any

ENVIRONMENT_COLUMNS = (
    *("cpu_model", "cpu_capability", "threads", "gpu", "cuda", "cudnn"),
    *("torch_version", "commit", "local_changes"),
)
"""All text: of a trial whose attempts ran on several machines a column names each of them."""


def environment_columns(attempts: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """The columns of a trial; None where no attempt (a record of environment.json) says anything."""
    return {name: _values(name, attempts) for name in ENVIRONMENT_COLUMNS}


def _values(name: str, attempts: Sequence[Mapping[str, Any]]) -> str | None:
    values = (_value(name, attempt) for attempt in attempts)
    return "; ".join(dict.fromkeys(str(value) for value in values if value is not None)) or None


def _value(name: str, attempt: Mapping[str, Any]) -> Any:
    if name == "torch_version":
        return attempt["versions"].get("torch") if attempt.get("versions") else None
    if name == "local_changes" and name not in attempt:  # earlier versions said only whether there are any
        return {True: "yes", False: "none"}.get(attempt.get("dirty"))  # type: ignore[arg-type]
    return attempt.get(name)
