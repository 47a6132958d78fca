"""Where a run goes on from: the newest state of its own or of its trunk that is whole and fits it.

A trunk's are kept for other trials: the state before a cooldown and every row of metrics up to it. Each is a
checkpoint as a trial's own, written whole and once. They only save time: whoever finds one missing, damaged
or trained in another way goes on from an older one or from the start, and ends with the same bits.
"""

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from scalevec.model.config import RunOptions, Trial
from scalevec.model.identity import branch_step
from scalevec.model.train import checkpoints, drop_leftovers, newest_step, set_aside
from scalevec.model.train.checkpoint import DAMAGE, Checkpoint, load_newest, read_checkpoint, write_checkpoint
from scalevec.model.train.record import Recorder, stays_whole, unbroken

_ROWS = "metrics"
"""The name under which a file holds the rows of metrics, as the bytes of their JSON."""

_DELETED = (errno.ENOENT, errno.ESTALE)
"""What a system says, and a file server, where a folder was deleted under a writer."""

_OF_THE_MACHINE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What keeps a process from reading any file."""


TrunkState = tuple[Checkpoint, list[dict[str, Any]]]
"""A checkpoint of a trunk and the rows of metrics of all its steps."""


@dataclass(frozen=True)
class StartingState:
    """A state to go on from, which counts the resume already; None is the start.

    ``rows`` are those of the state's steps, where they are not the trial's own. ``note`` and ``details`` are
    for the recorder.
    """

    checkpoint: Checkpoint | None = None
    rows: Sequence[Mapping[str, Any]] | None = None
    note: str = ""
    details: Mapping[str, Any] | None = None

    def settle(self, recorder: Recorder) -> None:
        """Make what ``recorder`` keeps end where the state does, and say where that is."""
        if self.rows is not None:
            recorder.replace_rows(self.rows)
        if self.note:
            recorder.say(self.note, **(self.details or {}))
        if self.rows is None:
            recorder.cut_back(0 if self.checkpoint is None else self.checkpoint.step)


def how_trained(options: RunOptions) -> dict[str, Any]:
    """What must be the same for two runs of the same steps to give the same bits."""
    same = {name: getattr(options, name) for name in ("micro_batch", "device", "shard", "compiled")}
    return {**same, "world_size": options.processes}


@dataclass(frozen=True)
class StartingStates:
    """The states that a run of ``trial`` may go on from, in its own folder and in that of its trunk."""

    trial: Trial
    options: RunOptions
    recorder: Recorder
    checkpoints: Path
    trunk: Path | None

    def furthest(self) -> StartingState:
        """The furthest: the trunk's, else the trial's own, else the start.

        Checkpoints that cannot be used are set aside on the way, so this is for the trial's owner alone.
        """
        # Of others it would drop the files that they are writing.
        drop_leftovers(self.checkpoints)
        self._set_aside_without_rows()
        return self._of_trunk() or self._of_trial()

    def _set_aside_without_rows(self) -> None:
        """A checkpoint whose rows were lost, as with a machine's power, would leave a gap in the metrics."""
        reached = unbroken(self.recorder.recorded())
        for step, path in reversed(checkpoints(self.checkpoints)):
            if step > reached:
                set_aside(path)
                why = f"the metrics are whole only to step {reached}"
                self.recorder.say(f"checkpoint {path.name} is not used: {why}")

    def _of_trial(self) -> StartingState:
        checkpoint = load_newest(self.checkpoints, self.recorder.say)
        if checkpoint is None:
            return StartingState()
        resumes = checkpoint.facts.get("resumes", 0) + 1
        resumed = replace(checkpoint, facts={**checkpoint.facts, "resumes": resumes})
        return StartingState(resumed, note=f"resumed from the checkpoint after step {checkpoint.step}")

    def _of_trunk(self) -> StartingState | None:
        """The newest state of the trunk, where it is further than the trial's own.

        Its time and resumes count as the trial's, which would have spent them alone.
        """
        if self.trunk is None:
            return None
        steps = range(newest_step(self.checkpoints) + 1, branch_step(self.trial) + 1)
        state = load_trunk(self.trunk, steps, self._unfit, self.recorder.say)
        if state is None:
            return None
        kept, rows = state
        step, origin = kept.step, kept.facts.get("origin", {})
        branched = replace(kept, facts={**kept.facts, "trunk_step": step})
        details = {"trunk": {"trunk_id": self.trunk.name, "step": step, **origin}}
        return StartingState(branched, rows, _note_of_branch(self.trunk.name, step, origin), details)

    def _unfit(self, state: TrunkState) -> str:
        """Why going on from ``state`` would not be this trial alone; empty where it is."""
        checkpoint, rows = state
        here = how_trained(self.options)
        there = {name: checkpoint.facts.get(name) for name in here}
        pairs = ((name, there[name], value) for name, value in here.items())
        if others := [f"{name} {then}, here {value}" for name, then, value in pairs if then != value]:
            return f"it was trained with {'; '.join(others)}"
        if unbroken(rows) != checkpoint.step:
            return "its metrics have a gap"
        if not stays_whole(self.trial, rows):
            return "this trial alone would have counted as diverged by then"
        return ""


def _note_of_branch(trunk: str, step: int, origin: Mapping[str, Any]) -> str:
    """``origin`` has no commit where the code is in no repository."""
    known = (f"{name} {str(origin[name])[:12]}" for name in ("trial_id", "commit") if origin.get(name))
    return f"branched from trunk {trunk[:12]} after step {step}" + "".join(f", {words}" for words in known)


def save_trunk(folder: Path, checkpoint: Checkpoint, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Keep ``checkpoint`` with ``rows`` in ``folder``, where there is none of that step yet.

    False where it is not kept because the folder is deleted meanwhile: it only saves time. No lock: of two
    that write the same step at once, either will do. Raises ``OSError`` where the disk refuses.
    """
    text = torch.frombuffer(bytearray(json.dumps(rows).encode()), dtype=torch.uint8)
    try:
        write_checkpoint(folder, replace(checkpoint, tensors={**checkpoint.tensors, _ROWS: text}))
    except OSError as problem:
        if problem.errno not in _DELETED:
            raise
        return False
    return True


def load_trunk(
    folder: Path, steps: range, unfit: Callable[[TrunkState], str], say: Callable[[str], None]
) -> TrunkState | None:
    """The newest state of ``folder`` at one of ``steps`` of which ``unfit`` says nothing.

    ``say`` is told of each one that is passed over; a damaged one is set aside. Raises ``OSError`` as
    ``checkpoint.load_newest`` does.
    """
    for step, path in reversed(checkpoints(folder)):
        if step not in steps:
            continue
        try:
            state = _with_rows(read_checkpoint(path))
        except FileNotFoundError:  # nobody needed it any more
            continue
        except DAMAGE as problem:
            say(f"trunk {folder.name[:12]}: {path.name} is damaged ({problem}); it is set aside")
            with suppress(OSError):  # it is passed over all the same
                path.rename(path.with_name(f"{path.name}.corrupt"))
            continue
        except OSError as problem:
            if problem.errno in _OF_THE_MACHINE:
                raise
            say(f"trunk {folder.name[:12]}: {path.name} is not used ({problem})")
            continue
        if reason := unfit(state):
            say(f"trunk {folder.name[:12]}: the state after step {step} is not used, {reason}")
            continue
        return state
    return None


def _with_rows(checkpoint: Checkpoint) -> TrunkState:
    rows = json.loads(checkpoint.tensors[_ROWS].numpy().tobytes())
    tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if name != _ROWS}
    return replace(checkpoint, tensors=tensors), rows
