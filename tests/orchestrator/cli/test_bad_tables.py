"""Bad input from the command line: exit code 2, one message that says what and where, and no traceback."""

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scalevec.orchestrator.cli.main import main
from support import SCALEVEC

Run = Callable[..., tuple[int, str, str]]


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


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Writes a table as t.csv and gives exit code, standard output and standard error of a command."""

    def call(table: pd.DataFrame, command: str, *options: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        table.to_csv("t.csv", index=False)
        reference = ["--reference", "baseline"] if command == "compare" else []
        monkeypatch.setattr("sys.argv", ["scalevec", command, "t.csv", *reference, *options])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return call


def changed(column: str, value: object, row: int = 2) -> pd.DataFrame:
    table = good().astype({column: object})
    table.loc[row, column] = value
    return table


def assert_refused(done: tuple[int, str, str], *parts: str) -> None:
    code, out, err = done
    assert code == 2, err
    assert out == ""
    assert len(err.strip().splitlines()) == 1, err
    for part in parts:
        assert part in err


def test_the_good_table_is_fitted_and_compared(run: Run):
    """Else every refusal below would prove nothing."""
    assert run(good(), "fit", "--bootstrap", "50")[0] == 0
    assert run(good(), "compare", "--bootstrap", "50")[0] == 0


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_text_in_a_number(run: Run, command: str):
    assert_refused(run(changed("loss", "3.1 nats"), command), "column 'loss', row 3", "'3.1 nats'")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [("fit", "left out: 1 duplicate"), ("compare", "1 row equal to another in every column")],
)
def test_a_row_that_stands_twice_counts_once_and_is_said(run: Run, command: str, sentence: str):
    code, out, err = run(pd.concat([good(), good().iloc[[3]]]), command, "--bootstrap", "50")
    assert code == 0
    assert sentence in out + err


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_an_expression_that_calls_something(run: Run, command: str):
    where = "__import__('os').system('true')"
    assert_refused(run(good(), command, "--where", where), "where", "is not allowed")


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_a_table_of_200_megabytes_is_refused_before_it_is_read(
    run: Run, command: str, tmp_path: Path, monkeypatch
):
    def grow(self: pd.DataFrame, path: str, index: bool) -> None:
        with (tmp_path / path).open("wb") as file:
            file.write(b"n_params,n_tokens,loss\n")
            file.truncate(200_000_000)

    monkeypatch.setattr(pd.DataFrame, "to_csv", grow)
    monkeypatch.setattr(pd, "read_csv", None)
    assert_refused(run(good(), command), "has 200000000 bytes")


def test_too_little_memory_is_what_the_machine_lacks(run: Run, monkeypatch: pytest.MonkeyPatch):
    def exhausted(*points: object) -> None:
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr("scalevec.analysis.fits.arm_data.fit_identified", exhausted)
    code, out, err = run(good(), "fit")
    assert (code, out) == (3, "")
    assert err == (
        "scalevec: not enough memory (Unable to allocate 9 GiB): "
        "a smaller table or fewer bootstrap replicates need less\n"
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_our_signs_is_written_to_in_plain_letters(tmp_path: Path, encoding: str):
    good().assign(loss=lambda t: t.loss - 0.3 * (t.arm == "unified")).to_csv(tmp_path / "t.csv", index=False)
    done = in_process(tmp_path, "compare t.csv --bootstrap 0", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert b" -0.3" in done.stdout


def test_a_closed_standard_output_is_no_fault(tmp_path: Path):
    good().to_csv(tmp_path / "t.csv", index=False)
    for command in ("fit t.csv --bootstrap 0", "results t.csv"):
        done = in_process(tmp_path, f"{command} >&-")
        assert done.returncode == 0, done.stderr


def in_process(folder: Path, command: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    line = ["sh", "-c", f"{shlex.quote(str(SCALEVEC))} {command}"]
    return subprocess.run(line, cwd=folder, env=os.environ | variables, capture_output=True)
