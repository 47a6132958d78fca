"""Bad input from the command line: exit code 2, one message that says what and where, and no traceback."""

import os
import shlex
import subprocess
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from odd_tables import fault_of
from support import SCALEVEC, succeeded


def good() -> pd.DataFrame:
    """Two arms, five rungs, two seeds."""
    rng = np.random.default_rng(0)
    sizes = np.repeat(np.geomspace(1e5, 1e6, 5).round(), 2)
    parts = []
    for arm in ("baseline", "unified"):
        table = pd.DataFrame({"n_params": sizes, "n_tokens": 20 * sizes, "seed": [0, 1] * 5})
        loss = 10 * sizes**-0.1 * np.exp(rng.normal(0, 0.01, 10))
        parts.append(table.assign(arm=arm, loss=loss.round(6)))
    return pd.concat(parts, ignore_index=True)


def test_a_row_that_stands_twice_counts_once_and_is_said(command, tmp_path):
    pd.concat([good(), good().iloc[[3]]]).to_csv(tmp_path / "t.csv", index=False)
    sentences = {"fit": "left out: 1 duplicate", "compare": "1 row equal to another in every column"}
    for name, sentence in sentences.items():
        done = succeeded(command(name, "t.csv", "--bootstrap", "50"))
        assert sentence in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["fit", "compare"])
def test_a_table_of_200_megabytes_is_refused_before_it_is_read(command, name, tmp_path, monkeypatch):
    with (tmp_path / "t.csv").open("wb") as file:
        file.write(b"n_params,n_tokens,loss\n")
        file.truncate(200_000_000)
    monkeypatch.setattr(pd, "read_csv", None)
    done = command(name, "t.csv")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "has 200000000 bytes" in done.stderr


def test_too_little_memory_is_what_the_machine_lacks(command, tmp_path, monkeypatch):
    exhausted = Mock(side_effect=MemoryError("Unable to allocate 9 GiB"))
    monkeypatch.setattr("scalevec.analysis.fits.arm_data.laws_of_arms", exhausted)
    good().to_csv(tmp_path / "t.csv", index=False)
    done = command("fit", "t.csv")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "scalevec: not enough memory (Unable to allocate 9 GiB): "
        "a smaller table or fewer bootstrap replicates need less\n"
    )


def test_a_terminal_without_our_signs_is_written_to_in_plain_letters(tmp_path: Path):
    good().assign(loss=lambda t: t.loss - 0.3 * (t.arm == "unified")).to_csv(tmp_path / "t.csv", index=False)
    done = in_process(tmp_path, "compare t.csv --bootstrap 0", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert b" -0.3" in succeeded(done).stdout


def test_a_closed_standard_output_is_no_fault(tmp_path: Path):
    good().to_csv(tmp_path / "t.csv", index=False)
    succeeded(in_process(tmp_path, "fit t.csv --bootstrap 0 >&-"))


def in_process(folder: Path, command: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    line = ["sh", "-c", f"{shlex.quote(str(SCALEVEC))} {command}"]
    return subprocess.run(line, cwd=folder, env=os.environ | variables, capture_output=True)


MARKS = [pytest.mark.slow] * 4 + [pytest.mark.nightly] * 396


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [pytest.param(25 * n, marks=mark) for n, mark in enumerate(MARKS)])
def test_odd_tables_are_answered_or_refused(first: int, tmp_path: Path):
    assert [fault for number in range(first, first + 25) if (fault := fault_of(number, tmp_path))] == []
