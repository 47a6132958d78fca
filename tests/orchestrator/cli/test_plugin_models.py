"""A model whose scale vectors a plugin computes is read with the plugin that trained it and with no other."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

import scalevec
from plugin_package import ARMS, SWEEP, write_plugin
from scalevec.model import optimization
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.sources import runs as reading
from support import SCALEVEC, assert_refused, filled_once

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def kept(tmp_path_factory, text_files):
    """A folder with two trials whose weights were kept; the arm ``signs`` needs the plugin beside it."""

    def fill(folder):
        write_plugin(folder)
        (folder / "s.yaml").write_text(SWEEP.format(text=text_files) + "keep: weights\n")
        variables = {"XDG_CONFIG_HOME": str(folder / "config"), "SCALEVEC_CACHE_DIR": str(folder / "cache")}
        run = [str(SCALEVEC), "run", "s.yaml", "--trust", "-j", "1"]
        subprocess.run(run, cwd=folder, env=os.environ | variables, check=True)

    return filled_once(tmp_path_factory, "plugged", fill)


@pytest.fixture
def folder(kept, tmp_path, monkeypatch, own_registries):
    """A copy of it, in a process that has loaded no plugin and a user who has trusted nothing."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mine"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(reading, "_copies", {})
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    origin = tmp_path / "runs/sweeps/plugged/origin.json"
    origin.write_text(json.dumps({"folder": str(tmp_path)}))
    yield tmp_path
    optimization.imported.cache_clear()


@pytest.fixture
def trial(folder) -> str:
    """The trial that needs the plugin."""
    rows = scalevec.open(folder / "runs").results("plugged")
    return rows.set_index("arm").trial_id["signs"][:12]


def test_it_is_asked_for_trust_and_then_is_measured_and_exported(folder, trial, command):
    (folder / "text.txt").write_text("def main():\n    return 1\n")
    assert_refused(command("evaluate", trial, "text.txt"), 2, "its code is not trusted")
    assert "mylab" not in sys.modules
    assert command("evaluate", trial, "text.txt", "--trust").returncode == 0
    exported = command("export", trial, "-o", "out")
    assert "LlamaForCausalLM" in exported.stdout, exported.stderr


def test_the_exported_model_computes_what_the_trained_one_does(folder, trial, command):
    transformers = pytest.importorskip("transformers")
    assert command("export", trial, "-o", "out", "--trust").returncode == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder / "out").eval()
    ours = scalevec.open(folder / "runs").trial(trial).model()
    tokens = torch.arange(24)[None]
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, ours(tokens), rtol=1e-4, atol=1e-5)


def test_an_edit_of_the_plugin_does_not_matter_where_the_snapshot_has_what_trained(folder, trial):
    write_plugin(folder, ARMS.replace("softplus(beta + alpha)", "relu(beta + alpha + 0.4586751453870819)"))
    model = scalevec.open(folder / "runs").trial(trial).model(trust=True)
    vector = next(part for part in model.modules() if hasattr(part, "alpha"))
    torch.testing.assert_close(vector(), torch.nn.functional.softplus(vector.beta + vector.alpha))


def test_a_changed_plugin_is_refused_with_where_it_was_sought(folder, trial, command, tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEVEC_PRIVATE_DIR", str(tmp_path / "another"))
    write_plugin(folder, ARMS + "# an edit\n")
    refused = command("export", trial, "-o", "out", "--trust")
    assert_refused(refused, 2, f"which is not there any more; other content is in: {folder}")
    assert "mylab" not in sys.modules
    assert not (folder / "out").exists()


def test_a_second_version_in_one_process_is_refused(folder, trial):
    trained = scalevec.open(folder / "runs").trial(trial)
    trained.model(trust=True)
    name, (_, copy) = reading._copies.popitem()
    reading._copies[name] = "f" * 64, copy
    with pytest.raises(InvalidInputError, match="has loaded another version of it; start a new one"):
        trained.model(trust=True)
