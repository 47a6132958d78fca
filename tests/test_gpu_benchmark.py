"""``benchmarks/gpu.sh --dry``: every part runs on the CPU, with the few packages that it asks for."""

import json
import os
import subprocess
import sys

import pytest

from support import CHECKOUT, assert_refused

pytestmark = pytest.mark.slow
LACKING = (
    *("pydantic", "sqlalchemy", "ray", "submitit", "typer", "rich", "ruamel", "matplotlib", "platformdirs"),
)
INTERPRETER = """\
#!{python}
import runpy, sys
from pathlib import Path
sys.modules.update(dict.fromkeys({lacking}))
sys.argv.pop(0)
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def gpu_sh(tmp_path):
    python = tmp_path / "python"
    python.write_text(INTERPRETER.format(python=sys.executable, lacking=LACKING))
    python.chmod(0o755)
    # No card: the tests are to say the same on a machine that has one.
    variables = os.environ | {"PYTHON": str(python), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}

    def run(*arguments):
        command = [str(CHECKOUT / "benchmarks" / "gpu.sh"), "--out", str(tmp_path / "out"), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)

    return run


@pytest.mark.nightly
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param("machine,head,losses,speed-toy", marks=pytest.mark.slow),
        pytest.param("first,second", marks=pytest.mark.nightly),
    ],
)
def test_parts_run_dry_without_the_packages_that_only_sweeps_need(parts, gpu_sh, tmp_path):
    done = gpu_sh("--dry", "--parts", parts)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert report["device"] == "cpu"
    assert {part["status"] for part in report["parts"].values()} == {"ok"}
    assert all(part["figures"] for part in report["parts"].values())


def test_a_part_that_there_is_not_is_refused_with_those_that_there_are(gpu_sh):
    done = gpu_sh("--dry", "--parts", "head,tail")
    assert_refused(done, 2, "no tail; there are first, second, machine, head, losses, speed-toy")


def test_what_there_was_no_time_for_has_failed_and_the_report_is_whole(gpu_sh, tmp_path):
    assert gpu_sh("--dry", "--seconds", "0").returncode == 1
    report = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert {part["status"] for part in report["parts"].values()} == {"failed"}


def test_without_a_card_it_says_so_and_writes_nothing(gpu_sh, tmp_path):
    assert_refused(gpu_sh(), 2, "no CUDA device")
    assert not (tmp_path / "out").exists()
