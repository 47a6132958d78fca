"""The folder of a sweep: ``RUNS_DIR/sweeps/NAME/``, what was asked and what was decided."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalevec.results.files import FileIn, names_in, read_json_if_any, write_atomic, write_json

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def sweep_names(runs_dir: Path) -> list[str]:
    """The sweeps that RUNS_DIR knows, sorted."""
    return [name for name in names_in(Path(runs_dir) / "sweeps") if _NAME.fullmatch(name)]


@dataclass(frozen=True)
class SweepFolder:
    """What is kept of one sweep. Each reader gives None before the first writing.

    Writing is atomic and creates the folder; reading raises ``CorruptRecordError``.
    """

    path: Path

    @classmethod
    def of(cls, runs_dir: Path, name: str) -> "SweepFolder":
        """The folder of a sweep, existing or not. Raises ``ValueError`` for a name it cannot have."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"sweep name {name!r}: expected up to 100 letters, digits, '.', '_' and '-', "
                "the first a letter or digit"
            )
        return cls(Path(runs_dir) / "sweeps" / name)

    @property
    def name(self) -> str:
        """The sweep's name."""
        return self.path.name

    sweep_path = FileIn("sweep.yaml")
    """The sweep file as it was given."""
    resolved_path = FileIn("resolved.json")
    """The sweep with every default in its place."""
    members_path = FileIn("members.json")
    """The trials of the sweep."""
    tuning_path = FileIn("tuning.json")
    """The frozen choices of tuning."""
    verdicts_path = FileIn("verdicts.json")
    """The verdicts that were given, each with the pairs it had."""
    dropped_path = FileIn("dropped.json")
    """The trials that the sweep file left out after they had been started."""
    report_path = FileIn("report.html")
    """The report."""
    origin_path = FileIn("origin.json")
    """The folder that the sweep file's relative paths count from."""

    def write_sweep(self, content: bytes, origin: Path) -> None:
        """Keep the sweep file, byte for byte, and the folder ``origin`` that it was read in."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.sweep_path, content)
        self._write(self.origin_path, {"folder": str(origin.resolve())})

    def origin(self) -> Path | None:
        """The folder of the sweep file that was given."""
        origin = read_json_if_any(self.origin_path, dict)
        return Path(origin["folder"]) if origin else None

    def sweep(self) -> bytes | None:
        """The sweep file as it was given."""
        try:
            return self.sweep_path.read_bytes()
        except FileNotFoundError:
            return None

    def write_resolved(self, resolved: dict[str, Any]) -> None:
        """Keep the sweep with its defaults."""
        self._write(self.resolved_path, resolved)

    def resolved(self) -> dict[str, Any] | None:
        """The sweep with its defaults."""
        return read_json_if_any(self.resolved_path, dict)

    def write_members(self, members: list[dict[str, Any]]) -> None:
        """Keep the list of trials."""
        self._write(self.members_path, members)

    def members(self) -> list[dict[str, Any]] | None:
        """The list of trials."""
        return read_json_if_any(self.members_path, list)

    def write_tuning(self, tuning: dict[str, Any]) -> None:
        """Freeze the choices of tuning."""
        self._write(self.tuning_path, tuning)

    def tuning(self) -> dict[str, Any] | None:
        """The frozen choices of tuning."""
        return read_json_if_any(self.tuning_path, dict)

    def verdicts(self) -> list[dict[str, Any]]:
        """The verdicts that were given, oldest first."""
        return read_json_if_any(self.verdicts_path, list) or []

    def add_verdicts(self, verdicts: list[dict[str, Any]]) -> None:
        """Keep further verdicts; those that were given stay."""
        self._write(self.verdicts_path, [*self.verdicts(), *verdicts])

    def dropped(self) -> list[dict[str, Any]]:
        """The trials that the sweep file left out after they had been started."""
        return read_json_if_any(self.dropped_path, list) or []

    def write_dropped(self, dropped: list[dict[str, Any]]) -> None:
        """Keep the whole list of dropped trials."""
        self._write(self.dropped_path, dropped)

    def _write(self, path: Path, value: Any) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(path, value)
