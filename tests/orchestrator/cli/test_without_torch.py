"""Without the extra ``train`` tables are analysed, and what trains says what to install before it begins."""

import subprocess
import sys
from pathlib import Path

import pytest

from scalevec.results.extras import install_command, packages_of
from support import assert_refused, succeeded

TABLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "wandb_export.csv"
WITHOUT = f"""
import sys
for package in {[*packages_of("train"), "ray"]}:
    sys.modules[package.replace("-", "_")] = None  # as if it were not installed
from scalevec.orchestrator.cli.main import main
main()
"""


def scalevec(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", WITHOUT, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "arguments",
    [
        ("import", str(TABLE), "--map", "arm=config.norm", "-o", "tidy.csv"),
        ("report", str(TABLE), "--map", "arm=config.norm", "--reference", "one-vector", "-o", "r.html"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_tables_are_analysed(arguments, tmp_path):
    succeeded(scalevec(tmp_path, *arguments))


@pytest.mark.parametrize(
    "arguments", [("demo",), ("corpus", "prepare", "s.yaml")], ids=lambda arguments: arguments[0]
)
def test_what_trains_names_the_command_that_installs_what_is_missing(arguments, tmp_path):
    ended = scalevec(tmp_path, *arguments)
    assert_refused(ended, 3, f"needs torch, which is not installed: {install_command('train')}")
    assert not list(tmp_path.iterdir())


def test_doctor_finds_what_is_missing(tmp_path):
    ended = scalevec(tmp_path, "doctor")
    assert ended.returncode == 3
    assert install_command("train") in ended.stdout
