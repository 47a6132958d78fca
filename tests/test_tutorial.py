"""docs/tutorial.md, from its first block to its last, as somebody does who reads it."""

import re

import pytest

from page_blocks import blocks, run
from support import CHECKOUT


@pytest.mark.slow
def test_the_tutorial_leads_to_a_verdict_on_ones_own_text(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").symlink_to(CHECKOUT / "docs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    printed: list[str] = []
    for kind, block in blocks("tutorial.md"):
        if kind == "yaml":
            (tmp_path / "mine.yaml").write_text(block)
        elif kind == "bash":
            printed = [line for command in block.splitlines() for line in run(command, monkeypatch, capsys)]
        elif kind == "text":
            assert [line for line in block.splitlines() if not is_begun(line, printed)] == []
    report = (tmp_path / "runs" / "sweeps" / "mine" / "report.html").read_text(encoding="utf-8")
    assert "unified" in report
    assert list((tmp_path / "figures").glob("*.svg"))


def is_begun(line: str, printed: list[str]) -> bool:
    """Whether a printed line begins like ``line``, whatever the numbers are on this machine."""
    return any(shape(other).startswith(shape(line.removesuffix("..."))) for other in printed)


def shape(line: str) -> str:
    return re.sub(r"[\d.,]+", "#", " ".join(line.split()))
