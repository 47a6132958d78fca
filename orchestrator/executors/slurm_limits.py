"""How many jobs a cluster lets this user have: the size of an array, and of all that is submitted."""

import getpass
import re
from collections.abc import Iterator, Mapping

from orchestrator.errors import Lacking
from orchestrator.executors.slurm_queue import SlurmFailed, call
from orchestrator.profiles import Profile, RungProfile


def largest_array(settings: Mapping[str, str]) -> int:
    """How many tasks one array may have."""
    limits = [int(settings.get("MaxArraySize", "1001"))]
    limits += [int(n) for n in re.findall(r"max_array_tasks=(\d+)", settings.get("SchedulerParameters", ""))]
    return max(1, min(limits))


def most_submitted(settings: Mapping[str, str], profile: Profile) -> int:
    """How many jobs may be in the queue at a time.

    The profile's word; else half of what the cluster holds, and below the limits that the accounting has
    for this user, of which the controller's own job takes one.
    """
    if profile.max_submitted:
        return profile.max_submitted
    asked = (profile, *profile.rungs.values())
    own = [limit - 1 for limit in _limits_of_user(asked)]
    return max(1, min([int(settings.get("MaxJobCount", "10000")) // 2, *own]))


def _limits_of_user(asked: tuple[RungProfile, ...]) -> Iterator[int]:
    """The limits of the associations and qualities of service that jobs would be submitted under."""
    accounts = {one.account for one in asked if one.account}
    qualities = {one.qos for one in asked if one.qos}
    user = f"user={getpass.getuser()}"
    for account, default, limit in _accounting("associations", "Account,DefaultQOS,MaxSubmitJobs", user):
        if not accounts or account in accounts:
            qualities |= {default} if default else set()
            yield from _number(limit)
    for name, *limits in _accounting("qos", "Name,MaxSubmitJobsPU,MaxSubmitJobsPA,GrpSubmit"):
        if name in qualities:
            for limit in limits:
                yield from _number(limit)


def _number(text: str) -> list[int]:
    return [int(text)] if text.isdecimal() else []


def _accounting(what: str, fields: str, *which: str) -> list[list[str]]:
    """Rows that the accounting shows; none where there is no accounting, or none that answers."""
    try:
        text = call("sacctmgr", "--noheader", "--parsable2", "show", what, *which, f"format={fields}")
    except (SlurmFailed, Lacking):
        return []
    rows = (line.split("|") for line in text.splitlines())
    return [row for row in rows if len(row) == fields.count(",") + 1]
