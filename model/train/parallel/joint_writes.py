"""Checkpoints that all ranks of a world write together, each what it holds."""

import errno
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalevec.model.train.checkpoints.behind import BackgroundWriter
from scalevec.model.train.checkpoints.folder import drop_old, shards_path, temporary_path
from scalevec.model.train.checkpoints.joint_state import Shard, complete, whole, write_shard
from scalevec.model.train.checkpoints.state import Checkpoint
from scalevec.model.train.parallel.process_group import ProcessGroup


class JointCheckpoint:
    """One checkpoint that is being written; all ranks make it, and complete it, at the same time.

    Raises ``OSError`` at all ranks where one of them has it.
    """

    def __init__(self, world: ProcessGroup, folder: Path, step: int) -> None:
        self._world, self._path = world, shards_path(folder, step)
        self._temporary = Path(world.done_by_leader(self._make_folder))
        self._shard: Shard | None = None
        self._facts = ""

    def _make_folder(self) -> str:
        temporary = temporary_path(self._path)
        temporary.mkdir(parents=True)
        return str(temporary)

    def write(self, checkpoint: Checkpoint) -> None:
        """Write what this rank holds. Raises ``OSError``; no other rank is waited for."""
        tensors = {name: whole(kept) for name, kept in checkpoint.tensors.items()}
        rank, size = self._world.rank, self._world.size
        self._facts = checkpoint.facts_text
        self._shard = write_shard(self._temporary, rank, size, tensors, checkpoint.parts, checkpoint.step)

    def complete(self, problem: BaseException | None = None) -> None:
        """Give the checkpoint its name, once all ranks have written; ``problem`` kept this one from it."""
        mine = {"error": _in_plain(problem)} if self._shard is None else asdict(self._shard)
        answers = [json.loads(text) for text in self._world.all_told(json.dumps(mine))]
        try:
            if problem is not None:
                raise problem
            for answer in answers:
                if "error" in answer:
                    raise OSError(*answer["error"])
            self._world.done_by_leader(lambda: self._named(answers))
        except BaseException:
            if self._world.leads:
                shutil.rmtree(self._temporary, ignore_errors=True)
            raise

    def _named(self, answers: Sequence[Mapping[str, Any]]) -> str:
        complete(self._temporary, self._path, [Shard(**answer) for answer in answers], self._facts)
        return ""


def _in_plain(problem: BaseException | None) -> tuple[int, str]:
    number = problem.errno if isinstance(problem, OSError) and problem.errno else errno.EIO
    return number, f"another rank: {problem}"


class JointWriter(BackgroundWriter):
    """Writes each rank's part behind the training; it is complete at the step by which all have written."""

    def __init__(self, folder: Path, world: ProcessGroup) -> None:
        super().__init__(folder)
        self._world = world
        self._pending: JointCheckpoint | None = None

    def _begin(self, step: int) -> None:
        self._pending = JointCheckpoint(self._world, self.folder, step)

    def _save(self, checkpoint: Checkpoint) -> None:
        assert self._pending is not None
        self._pending.write(checkpoint)

    def look(self) -> None:
        """Complete the checkpoint if all ranks have written."""
        if self._pending is not None and not self._world.agreed(self._is_writing(), False)[0]:
            self.wait()

    def wait(self) -> None:
        """Return when the last checkpoint is complete; all ranks wait at the same time."""
        problem = self._joined()
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.complete(problem)
            if self._world.leads:
                drop_old(self.folder)

    def _is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()
