"""The folder of a sweep: ``RUNS_DIR/sweeps/NAME/``, what was asked and what was decided."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.files import names_in, read_json, write_atomic, write_json

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def sweep_names(runs_dir: Path) -> list[str]:
    """The sweeps that RUNS_DIR knows, sorted."""
    return [name for name in names_in(Path(runs_dir) / "sweeps") if _NAME.fullmatch(name)]


@dataclass(frozen=True)
class SweepFolder:
    """What is kept of one sweep. Each reader gives None before the first writing.

    Writing is atomic and creates the folder; reading raises ``CorruptRecord``.
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

    @property
    def sweep_path(self) -> Path:
        """The sweep file as it was given."""
        return self.path / "sweep.yaml"

    @property
    def resolved_path(self) -> Path:
        """The sweep with every default in its place."""
        return self.path / "resolved.json"

    @property
    def members_path(self) -> Path:
        """The trials of the sweep."""
        return self.path / "members.json"

    @property
    def tuning_path(self) -> Path:
        """The frozen choices of tuning."""
        return self.path / "tuning.json"

    @property
    def report_path(self) -> Path:
        """The report."""
        return self.path / "report.html"

    def write_sweep(self, content: bytes) -> None:
        """Keep the sweep file, byte for byte."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.sweep_path, content)

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
        found: dict[str, Any] | None = self._read(self.resolved_path, dict)
        return found

    def write_members(self, members: list[dict[str, Any]]) -> None:
        """Keep the list of trials."""
        self._write(self.members_path, members)

    def members(self) -> list[dict[str, Any]] | None:
        """The list of trials."""
        found: list[dict[str, Any]] | None = self._read(self.members_path, list)
        return found

    def write_tuning(self, tuning: dict[str, Any]) -> None:
        """Freeze the choices of tuning."""
        self._write(self.tuning_path, tuning)

    def tuning(self) -> dict[str, Any] | None:
        """The frozen choices of tuning."""
        found: dict[str, Any] | None = self._read(self.tuning_path, dict)
        return found

    def _write(self, path: Path, value: Any) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(path, value)

    def _read(self, path: Path, kind: type) -> Any:
        try:
            return read_json(path, kind)
        except FileNotFoundError:
            return None
