"""The command line in this process."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from scalevec.orchestrator.cli.main import main


@pytest.fixture
def command(tmp_path, monkeypatch, capsys) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Calls a command in an empty folder with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("SCALEVEC_DEBUG", "SCALEVEC_RUNS_DIR", "SCALEVEC_STORE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["scalevec", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), printed.out, printed.err)

    return call
