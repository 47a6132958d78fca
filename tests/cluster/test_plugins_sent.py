"""Plugins on SLURM and Ray: trials train with what was sent, and workers say what a node lacks."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.slurm_daemons import until
from plugin_package import ARMS, SWEEP, install, write_plugin
from support import SCALEVEC, succeeded

PATIENCE_S = 600
SLURM = """\
cluster:
  {executor: slurm, poll_s: 0.2, memory_gb: 1.5, time: 60, rungs: {controller: {memory_gb: 1.5}}}
"""


@pytest.fixture(params=["slurm", pytest.param("ray", marks=pytest.mark.nightly)])
def folder(request, tmp_path, text_files, monkeypatch) -> Iterator[Path]:
    """A folder with the sweep, the plugin and a profile of a cluster that runs."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    if request.param == "ray":
        cluster = request.getfixturevalue("ray_cluster")
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        profile = f"cluster: {{executor: ray, address: '{cluster.address}'}}\n"
    else:
        slurm = request.getfixturevalue("slurm_commands")
        profile = SLURM
    (tmp_path / "profiles.yaml").write_text(profile)
    (tmp_path / "s.yaml").write_text(SWEEP.format(text=text_files))
    yield tmp_path
    if request.param == "slurm":
        slurm.run("scancel", "--user=root")


def run(folder: Path, verb: str = "run") -> subprocess.CompletedProcess[str]:
    command = [str(SCALEVEC), verb, "s.yaml", "--profile", "cluster", "--trust"]
    environment = os.environ | {"SCALEVEC_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_a_node_that_lacks_a_plugin_is_named_and_trials_train_with_one_from_a_wheel(folder, monkeypatch):
    write_plugin(folder, "import nowhere_to_be_had\n" + ARMS)
    lacking = run(folder)
    assert lacking.returncode == 3, lacking.stderr
    message = "plugin: mylab.arms: cannot be imported: ModuleNotFoundError: No module named 'nowhere"
    assert message in lacking.stderr
    assert not list(folder.glob("runs/trials/*/*/claims/*"))
    shutil.rmtree(folder / "mylab")
    install(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder / "site"))
    done = succeeded(run(folder))
    assert "2 trials, 2 completed" in done.stdout


@pytest.mark.parametrize("folder", ["slurm"], indirect=True)
def test_a_controller_asks_nobody_and_goes_on_with_the_plugin_that_was_sent(folder):
    write_plugin(folder)
    succeeded(run(folder, "submit"))
    write_plugin(folder, "raise SystemExit('an edit')\n" + ARMS)
    (folder / "config" / "scalevec" / "trusted.json").unlink()
    log = folder / "runs/sweeps/plugged/controller/log.txt"
    until(
        lambda: len(list(folder.glob("runs/trials/*/*/result.json"))) == 2,
        "both trials have a result",
        lambda: log.read_text() if log.exists() else "no log",
    )
