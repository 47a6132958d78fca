"""The recipes for other people's trainers: two are run for real, at toy size."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from scalevec import sweeps
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CorpusFacts
from support import CHECKOUT, succeeded

RECIPES = CHECKOUT / "docs" / "recipes"


def toy_size(text: str) -> str:
    """The sweep with one size, one seed and a rate that is not tuned: two trials."""
    lines = [line for line in text.splitlines() if not line.startswith(("tune:", "ladder:"))]
    ladder = "ladder: [{name: s, width: 16, learning_rate: 0.01}]"
    return "\n".join([*lines, ladder, "seeds: [0]", "resources: {default: {keep: all}}\n"])


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_has_a_page_and_plans_without_its_trainer(path):
    assert f"]({path.name})" in path.with_suffix(".md").read_text(encoding="utf-8")
    assert f"](recipes/{path.stem}.md)" in (CHECKOUT / "docs" / "own-trainer.md").read_text(encoding="utf-8")
    sweep = sweeps.load(path)
    cells = expand(sweep, CorpusFacts("", sweep.corpus.vocabulary, 10**15))
    assert len({cell.arm for cell in cells}) == len(sweep.arms) >= 2
    assert len({cell.rung for cell in cells}) == len(sweep.ladder) >= 2
    assert sweep.tune is not None
    assert sweep.reference in sweep.arms


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "packages", "kept"),
    [
        ("hugging_face", ("transformers", "accelerate"), "checkpoint-*"),
        ("lightning", ("lightning",), "last.ckpt"),
    ],
)
def test_a_recipe_trains_and_is_read_by_its_own_log(name, packages, kept, tmp_path, scalevec, monkeypatch):
    for package in packages:
        pytest.importorskip(package)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shutil.copy(RECIPES / f"{name}_train.py", tmp_path)
    (tmp_path / "toy.yaml").write_text(toy_size((RECIPES / f"{name}.yaml").read_text()))
    succeeded(scalevec("run", "toy.yaml", "--trust"))
    for trial_id in trial_ids(tmp_path / "runs"):
        directory = RunDirectory.of(tmp_path / "runs", trial_id)
        result = directory.result()
        assert 0 < result["loss"] < result["loss_initial"]
        assert result["loss"] != result["loss_validation"]
        assert len(directory.metrics()) >= result["n_tokens"] // 512
        assert list(directory.out_path.glob(kept))
