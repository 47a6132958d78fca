"""What can be read is used, and standard error says what cannot."""

from collections.abc import Callable
from typing import TypeVar

from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.progress import note
from scalevec.results.files import CorruptRecordError
from scalevec.sweeps.errors import SweepError

Value = TypeVar("Value")


def readable(read: Callable[[], Value], otherwise: Value, left_out: str) -> Value:
    """Return what ``read`` gives, or ``otherwise`` with a warning that ``left_out`` is left out."""
    try:
        return read()
    except (CorruptRecordError, InvalidInputError, SweepError, OSError) as problem:
        note(f"warning: {problem}; {left_out}")
        return otherwise
