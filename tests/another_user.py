"""scalevec as a user who may write only where he is let, for tests that run as root."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import SCALEVEC

NOBODY = 65534


@dataclass(frozen=True)
class AnotherUser:
    """``folder`` can be read by him, ``home`` within it is his."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        switch = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        environment = os.environ | {"HOME": str(self.home), "SCALEVEC_CACHE_DIR": str(self.home / "cache")}
        for name in ("SCALEVEC_STORE", "SCALEVEC_PRIVATE_DIR"):
            environment.pop(name, None)
        words = [*switch, *map(str, command)]
        return subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True)

    def scalevec(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return self.run(SCALEVEC, *arguments)


@pytest.fixture
def as_nobody() -> Iterator[AnotherUser]:
    """Skipped where this user cannot become another, or that one may not run this checkout."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory(prefix="scalevec-nobody-") as name:
        Path(name).chmod(0o755)
        user = AnotherUser(Path(name))
        user.home.mkdir()
        os.chown(user.home, NOBODY, NOBODY)
        tried = user.scalevec("--help")
        if tried.returncode:
            pytest.skip(f"another user may not run this checkout: {tried.stderr.strip()}")
        yield user
