"""A tracker's folder or database of somebody else: nothing outside it is read, nor waited for."""

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mlflow_runs import mlflow_database, mlflow_folder
from scalevec.analysis.data.read import MOST_COLUMNS, table_of
from scalevec.analysis.errors import DataError
from scalevec.orchestrator.sources.imports import trackers
from scalevec.orchestrator.sources.imports.given_tables import read_given


@pytest.fixture
def folder(tmp_path) -> Path:
    return mlflow_folder(tmp_path, {"aa": ("2 3.1 100",)})


@pytest.fixture
def private(tmp_path) -> Path:
    (tmp_path / "private").write_text("1 2.5 7 the secret")
    return tmp_path / "private"


def assert_refused(source: Path, message: str) -> None:
    began = time.monotonic()
    with pytest.raises(DataError, match=message):
        read_given(str(source))
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("name", ["1/aa/params/x", "1/aa/metrics/x", "1/aa/meta.yaml", "1/bb/meta.yaml"])
@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
def test_a_link_a_pipe_or_a_device_is_named_and_not_read(folder, private, name, kind):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(private if kind == "link" else "/dev/zero")
    assert_refused(folder, f"{name}.*link")


@pytest.mark.parametrize("name", ["params", "metrics"])
def test_a_folder_that_is_a_link_is_named_and_not_read(folder, private, name):
    (folder / "1/aa" / name).rename(folder / "elsewhere")
    (folder / "1/aa" / name).symlink_to(folder / "elsewhere")
    assert_refused(folder, f"aa/{name} is a link")


def test_runs_below_a_linked_folder_are_none_of_the_imported(folder, tmp_path):
    mlflow_folder(tmp_path / "other", {"bb": ("2 3.1 100",)})
    (folder / "2").symlink_to(tmp_path / "other/mlruns/1")
    assert read_given(str(folder)).rows["run_id"].tolist() == ["aa"]


def test_a_link_to_the_whole_folder_is_followed_since_a_person_names_it(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert read_given(str(tmp_path / "link")).rows["run_id"].tolist() == ["aa"]


@pytest.mark.parametrize("name", ["params/x", "metrics/x", "meta.yaml"])
def test_a_file_of_gigabytes_is_refused_by_its_size(folder, name):
    with (folder / "1/aa" / name).open("wb") as stream:
        stream.truncate(3_000_000_000)
    assert_refused(folder, "3000000000 bytes; allowed: up to")


@pytest.mark.parametrize(
    "text",
    [
        "run_id: &a [1]\nrun_name: *a\n",
        "a0: &a0 [x, x]\n"
        + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
        + "run_id: *a39",
        f"run_id: aa\nstart_time: 1\nend_time: {'9' * 400}\n",
        "run_id:\nrun_name: x\n",
        "run_id: aa\nstatus: [1]\n",
        "a0: &a0 {x: 1}\n"
        + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 25)),
        "- run_id",
        "[" * 1_000,
        "\x00",
        "run_id: !!python/object/apply:os.system [id]",
    ],
)
def test_whatever_describes_a_run_is_read_or_refused_in_a_moment(folder, text):
    (folder / "1/aa/meta.yaml").write_text(text)
    began = time.process_time()
    with suppress(DataError):
        read_given(str(folder))
    assert time.process_time() - began < 5


def test_a_parameter_that_is_no_text_is_named(folder):
    (folder / "1/aa/params/x").write_bytes(b"\xff\xfe")
    assert_refused(folder, "params/x cannot be read as UTF-8")


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS run_uuid, x AS key"


@pytest.mark.parametrize("table", ["params", "latest_metrics", "runs"])
@pytest.mark.parametrize("how", [f"VIEW {{}} AS {ENDLESS} FROM n", "VIRTUAL TABLE {} USING fts4(run_uuid)"])
def test_a_view_or_a_virtual_table_in_place_of_a_table_is_refused(tmp_path, table, how):
    changes = f"DROP TABLE IF EXISTS {table}; CREATE {how.format(table)};"
    path = mlflow_database(tmp_path / "mlflow.db", changes)
    assert_refused(path, f"has no table {table}")


COMPUTED = """
DROP TABLE params;
CREATE TABLE params (run_uuid, key, value AS (hex(zeroblob(30000))));
INSERT INTO params """


def test_a_database_that_takes_too_long_is_given_up(tmp_path, monkeypatch):
    rows = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 50000) SELECT x, x FROM n;"
    path = mlflow_database(tmp_path / "mlflow.db", COMPUTED + rows)
    monkeypatch.setattr(trackers, "PATIENCE_S", 0.0)
    assert_refused(path, "takes too long: interrupted")


def test_cells_that_are_computed_do_not_fill_the_memory(tmp_path, monkeypatch):
    path = mlflow_database(tmp_path / "mlflow.db", COMPUTED + "VALUES ('aa', 'x'), ('aa', 'y'), ('aa', 'z');")
    monkeypatch.setattr(trackers, "LARGEST_FILE_BYTES", 100_000)
    assert_refused(path, "a larger table than is read, 2000000 rows and 100000 bytes")


def test_a_cell_of_any_size_is_refused(tmp_path):
    changes = "INSERT INTO params VALUES ('aa', 'x', zeroblob(20000000));"
    path = mlflow_database(tmp_path / "mlflow.db", changes)
    assert_refused(path, "string or blob too big")


@pytest.mark.parametrize("name", ["mlflow.db-wal", "mlflow.db-journal"])
@pytest.mark.parametrize("kind", ["changes", "pipe", "link"])
def test_what_sqlite_keeps_beside_the_file_is_named_and_not_opened(tmp_path, name, kind):
    path = mlflow_database(tmp_path / "mlflow.db")
    if kind == "changes":
        (tmp_path / name).write_bytes(b"changes")
    elif kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    assert_refused(path, f"{name}: changes that are not in the database yet")


def test_signs_in_the_name_of_a_database_are_no_options(tmp_path):
    path = mlflow_database(tmp_path / "ml?mode=rwc#flow.db")
    assert read_given(str(path)).rows["run_id"].tolist() == ["aa", "bb"]


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_an_event_file_that_is_none_is_named_and_not_opened(tmp_path, private, kind):
    path = tmp_path / "logs" / "events.out.tfevents.1"
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(private)
    assert_refused(tmp_path / "logs", "tfevents.1 is no regular file")


def test_a_table_of_columns_without_end_is_refused():
    with pytest.raises(DataError, match=r"1 rows of 10001 columns; allowed: up to 10000"):
        table_of([{f"x{n}": 1 for n in range(MOST_COLUMNS + 1)}])
