"""The folder of a trunk: ``RUNS_DIR/trunks/ab/ab12.../``, states before a cooldown that trials share.

What is in it only saves time, so it may be deleted at any moment.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from results.files import names_in

_PREFIX, _SUFFIX = "step-", ".safetensors"


def has_trunks(runs_dir: Path) -> bool:
    """Whether RUNS_DIR holds any trunk."""
    return (runs_dir / "trunks").is_dir()


@dataclass(frozen=True)
class TrunkFolder:
    """The states of one trunk, one file a step."""

    path: Path

    @classmethod
    def of(cls, runs_dir: Path, trunk_id: str) -> "TrunkFolder":
        """The folder of a trunk, existing or not."""
        return cls(runs_dir / "trunks" / trunk_id[:2] / trunk_id)

    def steps(self) -> list[int]:
        """The steps after which a state is kept, ascending; by the names of the files, unread."""
        names = (name for name in names_in(self.path) if name.startswith(_PREFIX) and name.endswith(_SUFFIX))
        steps = (name[len(_PREFIX) : -len(_SUFFIX)] for name in names)
        return sorted(int(step) for step in steps if step.isdecimal())

    def state_path(self, step: int) -> Path:
        """Where the state after ``step`` is kept."""
        return self.path / f"{_PREFIX}{step:09d}{_SUFFIX}"

    def remove(self) -> None:
        """Delete the folder with all that is in it; doing so again changes nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
