"""results: a short table at a terminal, every column elsewhere."""

import os
import subprocess
import sys

import pandas as pd
import pytest

from recorded_sweep import complete, directory_of, member_of, record_sweep
from scalevec.orchestrator.commands.look.results import results
from scalevec.orchestrator.errors import Exit, InvalidInputError


@pytest.fixture
def runs_dir(tmp_path):
    members = [member_of("none", 0), member_of("none", 1), member_of("unified", 0, stage="tuning")]
    record_sweep(tmp_path / "runs", "small", members)
    complete(directory_of(tmp_path / "runs", "none", 0))
    return tmp_path / "runs"


def test_a_terminal_gets_the_main_columns_and_those_that_differ(runs_dir, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert results("small", runs_dir) is Exit.DONE
    printed = capsys.readouterr()
    title, *rows = printed.out.splitlines()
    assert title.split()[0] == "trial"
    assert {"stage", "arm", "rate", "test", "validation"} <= set(title.split())
    assert not {"optimizer", "D/N"} & set(title.split())
    assert len(rows) == 3
    assert max(map(len, (title, *rows))) <= 80
    assert sum("3.2500" in row and "completed" in row for row in rows) == 1
    assert "scalevec results small > results.csv" in printed.err


def test_more_trials_than_lines_of_the_terminal_are_counted(runs_dir, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("LINES", "8")
    assert results("small", runs_dir) is Exit.DONE
    _, *rows, more = capsys.readouterr().out.splitlines()
    assert (len(rows), more) == (2, "... 1 more")


def test_elsewhere_it_is_the_whole_table(runs_dir, tmp_path):
    assert results("small", runs_dir, output=tmp_path / "all.csv") is Exit.DONE
    assert {"loss_blocks", "stream", "torch_version"} <= set(pd.read_csv(tmp_path / "all.csv").columns)
    assert results("small", runs_dir, output=tmp_path / "all.parquet") is Exit.DONE
    assert len(pd.read_parquet(tmp_path / "all.parquet")) == 3
    with pytest.raises(InvalidInputError, match=r"all\.tsv: a table is written as csv or parquet or json"):
        results("small", runs_dir, output=tmp_path / "all.tsv")
    assert not (tmp_path / "all.tsv").exists()


def test_a_pipe_and_a_link_that_a_person_names_stay_what_they_are(runs_dir, tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe.csv")
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        results("small", runs_dir, output=pipe)
        assert reader.stdout is not None
        assert b"loss_blocks" in reader.stdout.read()
    assert pipe.is_fifo()
    (link := tmp_path / "link.csv").symlink_to("new/all.csv")
    results("small", runs_dir, output=link)
    assert link.is_symlink()
    assert len(pd.read_csv(tmp_path / "new" / "all.csv")) == 3
