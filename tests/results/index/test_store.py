"""Where the index lies, and stores that cannot be used; what each store does is in ``tests/contracts``."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import URL

from scalevec.results.files import names_in
from scalevec.results.index import database
from scalevec.results.index import rows as index_looks
from scalevec.results.index.store import ResultsIndex
from scalevec.results.run_directory import RunDirectory
from scalevec.results.runs_identity import RUNS_ID


@pytest.fixture(autouse=True)
def no_store_named(monkeypatch):
    monkeypatch.delenv(database.STORE_VARIABLE, raising=False)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "index.sqlite").write_bytes(b"not a database, certainly " * 100)
    with pytest.raises(database.StoreError, match=r"index\.sqlite: file is not a database"):
        ResultsIndex(f"sqlite:///{tmp_path / 'index.sqlite'}")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("nonsense", "cannot be read; expected sqlite:///PATH or postgresql://"),
        ("postgresql://user:secret@host:port/name", "cannot be read"),
        ("postgresql://user:se@cret@host/name", "a second '@'"),
        ("mysql://user:secret@host/name", "'mysql' is not supported"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite://host/path", "names no file"),
        ("sqlite:///pa%00th", "null byte"),
        ("postgresql+asyncpg://user:secret@host/name", r"'postgresql\+asyncpg' is not supported"),
    ],
)
def test_a_malformed_store_is_refused_without_its_password(url, problem):
    with pytest.raises(database.StoreError, match=problem) as caught:
        ResultsIndex(url)
    assert not isinstance(caught.value, database.StoreUnavailableError)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@127.0.0.1:1/name",
        "postgresql://user@127.0.0.1:1/name?password=secret&connect_timeout=2",
    ],
)
def test_a_store_that_nobody_answers_is_unavailable_and_hides_its_password(url):
    message = r"store postgresql\+psycopg://user.*@127\.0\.0\.1:1/name"
    with pytest.raises(database.StoreUnavailableError, match=message) as caught:
        ResultsIndex(url)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there_makes_the_store_unavailable():
    with pytest.raises(database.StoreUnavailableError, match="unable to open database file"):
        ResultsIndex("sqlite:////absent/folder/index.sqlite")


def test_a_driver_that_is_not_installed_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    message = r"driver is not installed .*; pip install -e \S+\[postgresql\]'$"
    with pytest.raises(database.StoreUnavailableError, match=message):
        ResultsIndex("postgresql://user:secret@127.0.0.1:1/name")


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=12))
def test_no_password_is_shown(password):
    url = URL.create("postgresql", "someone", password, "host", None, "name").render_as_string(False)
    assert database.parse_url(url).password == password
    assert database.shown(database.parse_url(url)) == "postgresql+psycopg://someone:***@host/name"


@pytest.mark.parametrize("name", ["passwd", "options", "sslpassword"])
def test_no_parameter_is_shown(name):
    url = database.parse_url(f"postgresql://me@host:5/name?sslmode=require&{name}=secret1&connect_timeout=2")
    assert database.shown(url) == "postgresql+psycopg://me@host:5/name"


def test_what_the_database_says_of_a_hidden_parameter_is_hidden_too():
    url = database.parse_url("postgresql://me:one-secret@host/name?passwd=two-secret&passwd=three-secret")
    assert database.masked("one-secret, two-secret, three-secret", url) == "***, ***, ***"


def test_a_store_is_named_by_the_variable_or_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path))
    assert database.store_url(tmp_path / "runs") == database.default_url(tmp_path / "runs")
    monkeypatch.setenv(database.STORE_VARIABLE, "sqlite:///variable")
    assert database.store_url(tmp_path / "runs") == "sqlite:///variable"


def test_the_default_index_is_in_the_cache_and_one_for_each_runs_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache?%20"))
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    url = database.default_url(tmp_path / "runs")
    assert url == database.default_url(tmp_path / "link")
    assert url != database.default_url(tmp_path / "other")
    RunDirectory.of(tmp_path / "runs", "a" * 64).create({"seed": 1}, {})
    with ResultsIndex(url) as index:
        index.collect(tmp_path / "runs")
    assert names_in(tmp_path / "runs") == [RUNS_ID, "trials"]
    assert len(names_in(tmp_path / "cache?%20")) == 1


def test_what_several_threads_ask_comes_in_order(tmp_path):
    ids = [f"{number:064x}" for number in range(700)]
    for name in ids[::7]:
        RunDirectory.of(tmp_path, name).create({"seed": 1}, {})
    present, _ = index_looks.look(tmp_path, ids)
    assert list(present) == ids[::7]
    assert index_looks.with_other_result(tmp_path, dict.fromkeys(ids, "1:2")) == ids
