"""Trials that share a trunk: who keeps its states for the others, who waits for them, when they are deleted.

What that saves is told in the plan, before anything is spent (``add_savings``).

A trial waits, unsent, only for another one of its trunk that is under way and will pass a step which nobody
has kept yet, and which both take before their cooldowns. Where that one ends without having come so far,
nothing is waited for any more: the next trial of the trunk takes it on from the newest state there is.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from scalevec.model.train import checkpoint_steps, newest_step
from scalevec.orchestrator.attempts.jobs import Task
from scalevec.orchestrator.costs import checkpoint_bytes
from scalevec.orchestrator.errors import read_or_else
from scalevec.results.files import CorruptRecordError
from scalevec.results.opening import remove_folder
from scalevec.results.run_directory import RESULT_STATES, RunDirectory, trunk_path
from scalevec.results.sweep_folder import SweepFolder, sweep_names
from scalevec.sweeps.trainers.any_trial import AnyTrial, OwnTrial

T = TypeVar("T")

REMOTE_LOOK_S = 5.0
"""Seconds between two looks at the states of a trunk where a queue or a cluster stands between."""
ENDED = (*RESULT_STATES, "failed", "cancelling", "cancelled")


@dataclass(frozen=True)
class Branch:
    """Where a trial leaves its trunk: after ``step``, to cool down."""

    trunk: str
    step: int


class TrunkBook:
    """What a scheduler knows of the trunks of its trials. ``look_every_s``: how old a look may be."""

    def __init__(self, runs_dir: Path, look_every_s: float = 0.0) -> None:
        self.runs_dir, self.look_every_s = runs_dir, look_every_s
        self._branches: dict[str, Branch] = {}
        self._missing: dict[str, set[str]] = {}
        self._ahead: dict[str, list[Task]] = {}
        self._looks: dict[Path, tuple[float, Any]] = {}

    def begin(self, tasks: Sequence[Task], missing: Sequence[Task]) -> list[Task]:
        """Those of ``tasks`` that are ``missing``, each told at which steps it keeps its state for others.

        Trunks that nobody needs are deleted, if a trial ended while no scheduler was there.
        """
        self._branches, self._missing, self._looks = {}, {}, {}
        for task in missing:
            if name := task.trial.trunk_id():
                self._branches[task.trial_id] = Branch(name, task.trial.branch_step())
                self._missing.setdefault(name, set()).add(task.trial_id)
        if (self.runs_dir / "trunks").is_dir():
            for name in {task.trial.trunk_id() for task in tasks} - self._missing.keys() - {None}:
                self._remove(str(name))
        return [self._with_branch_steps(task) for task in missing]

    def _with_branch_steps(self, task: Task) -> Task:
        branch = self._branches.get(task.trial_id)
        if branch is None:
            return task
        others = self._missing[branch.trunk] - {task.trial_id}
        steps = tuple(sorted({min(branch.step, self._branches[other].step) for other in others}))
        return replace(task, options=replace(task.options, branch_steps=steps))

    def look_around(self, under_way: Iterable[Task]) -> None:
        """Take in which trials are under way, here or elsewhere."""
        self._ahead = {}
        for task in under_way:
            self.sent(task)

    def sent(self, task: Task) -> None:
        """One more trial is under way."""
        if branch := self._branches.get(task.trial_id):
            self._ahead.setdefault(branch.trunk, []).append(task)

    def waits(self, task: Task) -> bool:
        """Whether ``task`` would run steps that a trial under way will keep for it."""
        branch = self._branches.get(task.trial_id)
        if branch is None or branch.trunk not in self._ahead:
            return False
        reached = self._reached(task, branch)
        return any(reached < self._will_keep(other, branch.step) for other in self._ahead[branch.trunk])

    def _reached(self, task: Task, branch: Branch) -> int:
        """The step from which ``task`` would go on: of its trunk, or of its own checkpoint."""
        folder = trunk_path(self.runs_dir, branch.trunk)
        kept = self._looked_at(folder, lambda: checkpoint_steps(folder))
        checkpoints = RunDirectory.of(self.runs_dir, task.trial_id).checkpoints_path
        of_trunk = max((step for step in kept if step <= branch.step), default=0)
        return max(of_trunk, self._looked_at(checkpoints, lambda: newest_step(checkpoints)))

    def _will_keep(self, other: Task, limit: int) -> int:
        """The last step up to ``limit`` that ``other`` will keep; 0 where it has passed that."""
        step = min(limit, self._branches[other.trial_id].step)
        directory = RunDirectory.of(self.runs_dir, other.trial_id)
        last = self._looked_at(directory.path, lambda: read_or_else(directory.last_step, 0))
        return 0 if last > step else step

    def _looked_at(self, path: Path, look: Callable[[], T]) -> T:
        """What ``look`` finds at ``path``, or found not long ago."""
        now = time.monotonic()
        if path not in self._looks or now - self._looks[path][0] >= self.look_every_s:
            self._looks[path] = (now, look())
        value: T = self._looks[path][1]
        return value

    def settled(self, task: Task) -> None:
        """``task`` has its result or is given up; a trunk that no trial of any sweep needs is deleted."""
        branch = self._branches.get(task.trial_id)
        if branch is None:
            return
        left = self._missing[branch.trunk]
        left.discard(task.trial_id)
        if not left:
            self._remove(branch.trunk)

    def _remove(self, trunk: str) -> None:
        folder = trunk_path(self.runs_dir, trunk)
        if folder.is_dir() and not is_needed(self.runs_dir, trunk):
            remove_folder(folder)


def is_needed(runs_dir: Path, trunk: str) -> bool:
    """Return whether a trial of any sweep that shares ``trunk`` has not ended; True where nobody can say."""
    try:
        return any(
            RunDirectory.of(runs_dir, trial).state().state not in ENDED
            for name in sweep_names(runs_dir)
            for trial in _sharing(SweepFolder.of(runs_dir, name)).get(trunk, ())
        )
    except CorruptRecordError:
        return True


def _sharing(folder: SweepFolder) -> dict[str, list[str]]:
    try:
        status = folder.members_path.stat()
    except FileNotFoundError:
        return {}
    return _by_trunk(folder.path, (status.st_mtime_ns, status.st_ino))


@cache
def _by_trunk(path: Path, _stamp: tuple[int, int]) -> dict[str, list[str]]:
    """The members of a sweep by trunk, read again only where the file has changed."""
    trials: dict[str, list[str]] = {}
    for member in SweepFolder(path).members() or []:
        if trunk := member.get("cluster"):
            trials.setdefault(trunk, []).append(member["trial_id"])
    return trials


Row = dict[str, Any]
_NOTHING = {"n_tokens_from_trunk": 0, "flops_from_trunk": 0, "seconds_from_trunk": 0.0, "trunk_bytes": 0}


def add_savings(rows: Sequence[Row], trials: Sequence[AnyTrial]) -> None:
    """Give each of the ``rows`` of a plan its trunk, and what it need not train because another trial does.

    Of the trials of one trunk that are not done, the one that goes furthest before its cooldown trains the
    trunk; the others begin with its states. ``trunk_id`` is None for a trial that shares its trunk with none;
    where a tuned field is open it only says with which trials. ``trunk_bytes`` is the size of a state that is
    kept meanwhile, counted once.
    """
    shared = _shared(rows, trials)
    trunks = {
        rows[index]["trial_id"] or index: name for (name, _), indices in shared.items() for index in indices
    }
    for index, row in enumerate(rows):
        row |= {**_NOTHING, "trunk_id": trunks.get(row["trial_id"] or index)}
    for indices in shared.values():
        missing = [index for index in indices if rows[index]["state"] not in RESULT_STATES]
        branches = {index: trials[index].branch_step() for index in missing}
        leader = max(missing, key=lambda index: branches[index], default=None)
        kept: set[int] = set()
        for index, step in branches.items():
            if index != leader:
                rows[index].update(_spared(rows[index], trials[index], step, is_kept=step in kept))
                kept.add(step)


def _shared(rows: Sequence[Row], trials: Sequence[AnyTrial]) -> dict[tuple[str, str], list[int]]:
    """Return trunk -> indices of its trials, each trial once, for trunks of several trials.

    A trial with an open field has no name yet; those of one arm and trunk will get the same choice, but for
    the trials that check a carried rate: each has a rate of its own.
    """
    first: dict[Any, int] = {}
    for index, row in enumerate(rows):
        first.setdefault(row["trial_id"] or index, index)
    groups: dict[tuple[str, str], list[int]] = {}
    for index in first.values():
        is_check = rows[index]["trial_id"] is None and rows[index]["stage"] == "tuning"
        if (name := trials[index].trunk_id()) and not is_check:
            arm = "" if rows[index]["trial_id"] else rows[index]["arm"]
            groups.setdefault((name, arm), []).append(index)
    return {name: indices for name, indices in groups.items() if len(indices) > 1}


def _spared(row: Mapping[str, Any], trial: AnyTrial, step: int, *, is_kept: bool) -> Row:
    assert isinstance(trial, OwnTrial)  # no other has a trunk
    # The evaluation at the end is never spared.
    share = step / trial.steps * trial.training_flops / row["flops"]
    return {
        "n_tokens_from_trunk": step * trial.batch_tokens,
        "flops_from_trunk": round(row["flops"] * share),
        "seconds_from_trunk": (row["seconds"] - row["start_s"]) * share,
        "trunk_bytes": 0 if is_kept else checkpoint_bytes(trial),
    }


def independent(rows: Sequence[Row]) -> list[Row]:
    """Return ``rows`` without those that share a trunk with a larger token budget."""
    largest: dict[tuple[str, str], int] = {}
    for row in rows:
        largest[_of(row)] = max(row["n_tokens"], largest.get(_of(row), 0))
    return [row for row in rows if not row["trunk_id"] or row["n_tokens"] == largest[_of(row)]]


def _of(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["trunk_id"], row["arm"]


def savings_text(rows: Sequence[Row]) -> list[str]:
    """What the trunks of a plan save, as one line; none where they save nothing."""
    spared = [row for row in rows if row["n_tokens_from_trunk"]]
    if not spared:
        return []
    flops, size = (sum(row[name] for row in spared) for name in ("flops_from_trunk", "trunk_bytes"))
    trunks = len({row["trunk_id"] for row in spared})
    return [
        f"trunks: {len(spared)} trials branch off {trunks} trunks that other trials train; that saves "
        f"{flops:.3g} FLOPs; their states take up to {size / 1e6:,.1f} MB meanwhile"
    ]
