"""A broken index in the cache is said, set aside and made again; a store that a person named is not."""

import sqlite3
from pathlib import Path

import pytest

from scalevec.orchestrator.commands.data.store import rebuild
from scalevec.orchestrator.commands.look.status import sweep_statuses
from scalevec.orchestrator.sources.runs import Runs
from scalevec.results.index import database
from simulations import SWEEP, simulated

NAME = SWEEP["name"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "runs"
    simulated(folder)
    return folder


@pytest.fixture(autouse=True)
def index_path(runs, tmp_path, monkeypatch) -> Path:
    """Of a whole index in a cache of its own."""
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv(database.STORE_VARIABLE, raising=False)
    Runs(runs).results(NAME)
    return Path(database.parse_url(database.default_url(runs)).database)


def garbage(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096::50] = bytes(byte ^ 1 for byte in content[4096::50])
    path.write_bytes(content)


def other_columns(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"ALTER TABLE {database.trials.name} DROP COLUMN record")


def other_kinds(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {database.trials.name} SET record = '{{'")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BREAKS = [garbage, truncated, flipped, other_columns, other_kinds, a_folder]


@pytest.mark.parametrize("break_it", BREAKS, ids=lambda function: function.__name__)
def test_results_are_those_of_the_run_directories_and_the_damage_is_said(runs, index_path, break_it, capsys):
    whole = Runs(runs).results(NAME)
    break_it(index_path)
    assert Runs(runs).results(NAME).equals(whole)
    assert f"moved to {index_path}.damaged-" in capsys.readouterr().err
    assert sweep_statuses(NAME, runs)[0]["states"] == {"completed": 8}
    assert not capsys.readouterr().err


@pytest.mark.parametrize("break_it", BREAKS, ids=lambda function: function.__name__)
def test_store_rebuild_makes_it_again(runs, index_path, break_it):
    break_it(index_path)
    assert "8 trials" in rebuild(runs).text


def test_a_store_that_was_named_is_left_as_it_is_with_what_to_do(runs, tmp_path, monkeypatch):
    named = tmp_path / "named.sqlite"
    garbage(named)
    monkeypatch.setenv(database.STORE_VARIABLE, f"sqlite:///{named}")
    problem = r"file is not a database; .* `scalevec store rebuild`"
    with pytest.raises(database.StoreError, match=problem) as caught:
        rebuild(runs)
    assert not isinstance(caught.value, database.StoreUnavailableError)
    assert named.read_bytes().startswith(b"no database")


def test_an_index_that_may_not_be_opened_is_no_damage(runs, index_path, monkeypatch):
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(index_path.parent / "of a file"))
    url = database.default_url(runs)
    Path(database.parse_url(url).database).parent.rmdir()
    monkeypatch.setattr("scalevec.results.index.database.default_url", lambda _: url)
    monkeypatch.setattr("scalevec.results.index.database.store_url", lambda _: url)
    with pytest.raises(database.StoreUnavailableError, match="unable to open database file"):
        rebuild(runs)
