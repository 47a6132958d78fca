"""The section ``notify`` of a profile: who is told, and how. It holds secrets, which a sweep may not."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, Strict
from pydantic_core import PydanticCustomError


def profile_problem(message: str) -> PydanticCustomError:
    """What a validator of profiles raises."""
    return PydanticCustomError("profile", "{message}", {"message": message})


def _address(value: Any) -> Any:
    """Before pydantic sees it, which would show it in its refusal."""
    if isinstance(value, str) and re.match(r"https?://[^/\s]", value):
        return value
    raise profile_problem("cannot be used (it is not shown); allowed: an address that begins with https://")


class Notify(BaseModel):
    """Who is told that a sweep has ended, stalls, or that a trial failed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    command: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...], Strict(False)] = ()
    """Words of a command, with {event}, {sweep} and {text} in them; no shell."""
    webhook: Annotated[SecretStr, BeforeValidator(_address)] | None = None
    """An address that takes JSON with a ``text``; it is a secret, and never shown."""
    stall_minutes: Annotated[float, Field(gt=0)] = 30.0
    """Without a recorded step of any running trial."""
