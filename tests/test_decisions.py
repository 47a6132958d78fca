"""docs/decisions.md, from its first block to its last: what it runs ends well and says what it shows."""

import pytest

from page_blocks import blocks, is_among, run


@pytest.mark.slow
@pytest.mark.kept
def test_the_page_from_a_table_to_a_decision_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    printed: list[str] = []
    for kind, block in blocks("decisions.md"):
        if kind == "python":
            exec(block, {})  # noqa: S102 (the page is ours)
        elif kind == "bash":
            printed = [line for command in block.splitlines() for line in run(command, monkeypatch, capsys)]
        else:
            assert [line for line in block.splitlines() if not is_among(line, printed)] == []
    assert printed[0].startswith("fair, unified: rates of baseline and unified carried")
    assert printed[1].startswith("with ")
