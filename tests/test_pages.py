"""The tutorial, the page on decisions and the notebook, from first block to last, as a reader does it."""

import json
import re

import matplotlib.pyplot as plt
import pytest

from page_blocks import blocks, is_among, run
from support import CHECKOUT


@pytest.mark.slow
def test_the_tutorial_leads_to_a_verdict_on_ones_own_text(tmp_path, monkeypatch):
    (tmp_path / "docs").symlink_to(CHECKOUT / "docs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    printed: list[str] = []
    for kind, block in blocks("tutorial.md"):
        if kind == "yaml":
            (tmp_path / "mine.yaml").write_text(block)
        elif kind == "bash":
            printed = [line for command in block.splitlines() for line in run(command)]
        elif kind == "text":
            assert [line for line in block.splitlines() if not is_begun(line, printed)] == []
    report = (tmp_path / "runs" / "sweeps" / "mine" / "report.html").read_text(encoding="utf-8")
    assert "unified" in report
    assert list((tmp_path / "figures").glob("*.svg"))


@pytest.mark.slow
@pytest.mark.kept
def test_the_page_from_a_table_to_a_decision_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    printed: list[str] = []
    for kind, block in blocks("decisions.md"):
        if kind == "python":
            exec(block, {})  # noqa: S102 (the page is ours)
        elif kind == "bash":
            printed = [line for command in block.splitlines() for line in run(command)]
        else:
            assert [line for line in block.splitlines() if not is_among(line, printed)] == []
    assert printed[0].startswith("fair, unified: rates of baseline and unified carried")
    assert printed[1].startswith("with ")


def test_the_notebook_goes_from_an_export_to_a_verdict(monkeypatch, capsys):
    monkeypatch.chdir(examples := CHECKOUT / "docs" / "examples")
    plt.switch_backend("agg")
    names: dict[str, object] = {}
    for cell in json.loads((examples / "from_wandb.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)  # noqa: S102 (it is our own)
    verdicts = {arm: comparison.verdict for arm, comparison in names["compared"].items()}  # type: ignore[attr-defined]
    plt.close("all")
    assert verdicts == {"no-vector": "worse", "unified": "better"}
    assert "unified is better than one-vector" in capsys.readouterr().out


def is_begun(line: str, printed: list[str]) -> bool:
    """Whether a printed line begins like ``line``, whatever the numbers are on this machine."""
    return any(shape(other).startswith(shape(line.removesuffix("..."))) for other in printed)


def shape(line: str) -> str:
    return re.sub(r"[\d.,]+", "#", " ".join(line.split()))
