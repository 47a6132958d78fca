"""The examples of other people's trainers, each run for real at toy size."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from scalevec import sweeps
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CorpusFacts

EXAMPLES = Path(sweeps.__file__).parent / "examples"


def toy_size(text: str) -> str:
    """The sweep with one size, one seed and a rate that is not tuned: two trials."""
    lines = [line for line in text.splitlines() if not line.startswith(("tune:", "ladder:"))]
    ladder = "ladder: [{name: s, width: 16, learning_rate: 0.01}]"
    return "\n".join([*lines, ladder, "seeds: [0]", "resources: {default: {keep: all}}\n"])


# The example of a plugin would register it for all tests of this process.
@pytest.mark.parametrize(
    "path",
    [path for path in sorted(EXAMPLES.glob("*.yaml")) if "\nplugins:" not in path.read_text()],
    ids=lambda path: path.stem,
)
def test_every_example_loads_and_plans_without_its_trainer(path):
    sweep = sweeps.load(path)
    cells = expand(sweep, CorpusFacts("", sweep.corpus.vocabulary, 10**15))
    assert len({cell.arm for cell in cells}) == len(sweep.arms) >= 2
    assert len({cell.rung for cell in cells}) == len(sweep.ladder) >= 2
    assert sweep.tune is not None
    assert sweep.reference in sweep.arms
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# yaml-language-server: $schema=../schema.json"
    assert len(lines) <= 45


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "packages", "kept"),
    [
        ("hugging_face", ("transformers", "accelerate"), "checkpoint-*"),
        ("lightning", ("lightning",), "last.ckpt"),
    ],
)
def test_an_example_trains_and_is_read_by_its_own_log(name, packages, kept, tmp_path, scalevec, monkeypatch):
    for package in packages:
        pytest.importorskip(package)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shutil.copy(EXAMPLES / f"{name}_train.py", tmp_path)
    (tmp_path / "toy.yaml").write_text(toy_size((EXAMPLES / f"{name}.yaml").read_text()))
    done = scalevec("run", "toy.yaml", "--trust")
    assert done.returncode == 0, done.stderr
    for trial_id in trial_ids(tmp_path / "runs"):
        directory = RunDirectory.of(tmp_path / "runs", trial_id)
        result = directory.result()
        assert result is not None
        assert 0 < result["loss"] < result["loss_initial"]
        assert result["loss"] != result["loss_validation"]
        assert len(directory.metrics()) >= result["n_tokens"] // 512
        assert list(directory.out_path.glob(kept))
