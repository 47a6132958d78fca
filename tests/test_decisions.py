"""docs/decisions.md, from its first block to its last: what it runs ends well and says what it shows."""

import re
import shlex
import sys

import pytest

from kept_text import difference_beyond_rounding
from scalevec.orchestrator.cli.main import main
from support import CHECKOUT

PAGE = (CHECKOUT / "docs" / "decisions.md").read_text(encoding="utf-8")


@pytest.mark.kept
def test_the_page_from_a_table_to_a_decision_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    printed: list[str] = []
    for kind, block in re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL):
        if kind == "python":
            exec(block, {})  # noqa: S102 (the page is ours)
        elif kind == "yaml":
            (tmp_path / "decide.yaml").write_text(block)
        elif kind == "bash":
            printed = [line for command in block.splitlines() for line in run(command, monkeypatch, capsys)]
        else:
            assert [line for line in block.splitlines() if not is_among(line, printed)] == []
    assert printed[0].startswith("with ")
    assert any("(nats/token, of the laws at the points" in line for line in printed)


def run(command: str, monkeypatch, capsys) -> list[str]:
    """The lines that a command of the page prints."""
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert not ended.value.code, f"{command}\n{printed.err}"
    return printed.out.splitlines()


def is_among(line: str, printed: list[str]) -> bool:
    """Whether a line was printed, up to rounding and the width of columns."""
    words = " ".join(line.split())
    return any(difference_beyond_rounding(words, " ".join(other.split())) == "" for other in printed)
