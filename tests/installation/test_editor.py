"""What an editor sees of a bare clone, in which nothing is installed."""

import json
import subprocess
import sys
import venv

import pytest

from support import CHECKOUT


@pytest.mark.slow
def test_every_import_of_ours_is_found_in_a_bare_clone(tmp_path):
    """By pyright, which is what most editors ask; libraries are missing in the empty environment."""
    subprocess.run(["git", "clone", "--quiet", CHECKOUT, tmp_path / "clone"], check=True)
    venv.create(tmp_path / "empty", with_pip=False)
    entries = ["src/scalevec/__init__.py", "orchestrator/commands/run/run.py", "analysis/report/html.py"]
    empty = ["--pythonpath", str(tmp_path / "empty" / "bin" / "python")]
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--level", "error", *empty, *entries],
        cwd=tmp_path / "clone",
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout)
    problems = [problem["message"] for problem in report["generalDiagnostics"]]
    assert report["summary"]["filesAnalyzed"] == len(entries)
    assert any("could not be resolved" in text for text in problems)
    assert [text for text in problems if "scalevec" in text] == []
