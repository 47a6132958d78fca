"""The command line in this process."""

import subprocess
from collections.abc import Callable

import pytest

from support import call_main


@pytest.fixture
def command(tmp_path, monkeypatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Calls a command in an empty folder with a cache of its own, and without any variable of ours."""
    for name in ("SCALEVEC_RUNS_DIR", "SCALEVEC_STORE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    cache = {"SCALEVEC_CACHE_DIR": str(tmp_path / "cache")}
    return lambda *arguments: call_main(list(map(str, arguments)), tmp_path, cache)
