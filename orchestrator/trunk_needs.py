"""Which trunks are still needed: trials of another sweep may share one with those of this scheduler."""

from pathlib import Path

from results.files import CorruptRecord
from results.run_directory import RunDirectory
from results.sweep_folder import SweepFolder, sweep_names

ENDED = ("completed", "diverged", "failed", "cancelled")

Sharing = dict[str, list[str]]
"""Trunk -> the trials that share it."""


class TrunkNeeds:
    """Asks the members of every sweep in RUNS_DIR; each list is read again only where it has changed."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir
        self._read: dict[Path, tuple[tuple[int, int], Sharing]] = {}

    def is_needed(self, trunk: str) -> bool:
        """Whether a trial of any sweep that shares ``trunk`` has not ended; True where nobody can say."""
        try:
            return any(
                RunDirectory.of(self.runs_dir, trial).state().state not in ENDED
                for name in sweep_names(self.runs_dir)
                for trial in self._sharing(SweepFolder.of(self.runs_dir, name)).get(trunk, ())
            )
        except CorruptRecord:
            return True

    def _sharing(self, folder: SweepFolder) -> Sharing:
        try:
            status = folder.members_path.stat()
        except FileNotFoundError:
            return {}
        stamp = (status.st_mtime_ns, status.st_ino)
        if folder.path not in self._read or self._read[folder.path][0] != stamp:
            self._read[folder.path] = (stamp, _by_trunk(folder))
        return self._read[folder.path][1]


def _by_trunk(folder: SweepFolder) -> Sharing:
    found: Sharing = {}
    for member in folder.members() or []:
        if trunk := member.get("cluster"):
            found.setdefault(trunk, []).append(member["trial_id"])
    return found
