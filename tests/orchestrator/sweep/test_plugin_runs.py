"""A sweep with a plugin trains on this machine, from a folder and from a wheel, and is read without it."""

import json
import os
import shutil
from pathlib import Path

import pytest

from plugin_package import ARMS, SWEEP, install, write_plugin
from recorded_sweep import directories_in
from support import assert_refused, succeeded


@pytest.fixture
def folder(tmp_path, monkeypatch, text_files, own_registries) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("LAB_API_KEY", "hunter2-and-more")
    (tmp_path / "s.yaml").write_text(SWEEP.format(text=text_files))
    return tmp_path


@pytest.fixture
def call(folder, scalevec_process):
    return scalevec_process


@pytest.mark.slow
def test_a_plugin_in_the_sweeps_folder_trains_and_its_results_are_read_without_it(folder, call, scalevec):
    write_plugin(folder)
    assert_refused(scalevec("run", "s.yaml"), 2, "mylab/signs.py", "--trust")
    assert not (folder / "runs").exists()
    succeeded(call("run", "s.yaml", "--trust", "-j", "1"))
    shutil.rmtree(folder / "mylab")
    paths = folder.glob("runs/trials/*/*/trial.json")
    [signs] = [path.parent.name for path in paths if "signs" in path.read_text()]
    assert "plugin mylab.arms, source " in scalevec("explain", signs).stdout
    for words in (("status", "s.yaml"), ("results", "plugged"), ("table", "plugged", "overhead")):
        succeeded(scalevec(*words))
    optimizers = [each.trial()["semantic"]["optimizer"] for each in directories_in(folder / "runs")]
    [plugin] = [optimizer["plugin"] for optimizer in optimizers if "plugin" in optimizer]
    assert (plugin["module"], len(plugin["source"])) == ("mylab.arms", 64)
    resolved = json.loads((folder / "runs/sweeps/plugged/resolved.json").read_text())
    assert resolved["compare"]["law"] == "E + A/N^alpha"


@pytest.mark.slow
def test_an_installed_plugin_is_run_from_its_copy_and_what_it_prints_is_masked(folder, call):
    noisy = ARMS.replace("import math\n", "import math\nimport os\n").replace(
        "    return SignMomentum(", "    print('key', os.environ['LAB_API_KEY'])\n    return SignMomentum("
    )
    install(folder, noisy)
    succeeded(call("run", "s.yaml", "--trust", "-j", "1"))
    logs = "".join(path.read_text() for path in folder.glob("runs/trials/*/*/log.txt"))
    assert "key ***" in logs
    assert "hunter2" not in logs
    paths = folder.glob("runs/trials/*/*/environment.json")
    [[attempt], _] = [json.loads(path.read_text()) for path in paths]
    assert len(attempt["plugins"]["mylab.arms"]) == 64
    copies = Path(os.environ["SCALEVEC_PRIVATE_DIR"]).glob("snapshots/*/plugins/mylab/arms.py")
    assert noisy in [copy.read_text() for copy in copies]


def test_a_plugin_that_raises_at_import_is_refused_before_anything_runs(folder, call):
    write_plugin(folder, "import nowhere_to_be_had\n" + ARMS)
    done = call("run", "s.yaml", "--trust")
    message = "mylab.arms: cannot be imported: ModuleNotFoundError: No module named 'nowhere_to_be_had'"
    assert_refused(done, 2, message)
    assert not (folder / "runs" / "trials").exists()
