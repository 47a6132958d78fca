"""A trial that is interrupted again and again for little: its time limit, or the partition, is too short."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

LOOK_BACK = 5
"""Starts that are looked at."""
MOST_STARTS = 50
"""A trial that would need more starts than this at its pace is warned of."""
_CAUSES = ("timeout", "preempted")


def little_progress(events: Sequence[dict[str, Any]], steps: int) -> str | None:
    """Return what a person should know of a trial whose last starts hardly advanced it, else None."""
    stops = [
        event["step"]
        for event in events
        if event["state"] == "pending"
        and event.get("cause") in _CAUSES
        and isinstance(event.get("step"), int)
    ]
    if len(stops) <= LOOK_BACK:
        return None
    gained = sum(max(0, later - earlier) for earlier, later in pairwise(stops[-LOOK_BACK - 1 :]))
    if gained * MOST_STARTS >= steps * LOOK_BACK:
        return None
    return (
        f"interrupted {len(stops)} times; the last {LOOK_BACK} starts brought {gained} of {steps} steps: "
        "raise time in the profile, or use a partition that is not preempted"
    )
