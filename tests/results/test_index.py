"""The index equals the directories, however it came about and whoever wrote it."""

import multiprocessing
import shutil
import sqlite3

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from results.files import names_in
from results.index import CollectReport, ResultsIndex, StoreError, default_url
from results.index_tables import SCHEMA_VERSION, replace_older
from results.run_directory import RunDirectory

SPAWN = multiprocessing.get_context("spawn")
RESULT = {
    "status": "completed",
    "loss": 1.2345678901234567,
    "n_params": 25_000,
    "n_tokens": 400_000,
    "flops": 6 * 10**25,
    "steps": 390,
    "device": "cpu",
    "precision": "float32",
}


def identity(number: int) -> str:
    return f"{number:064x}"


def make_trial(runs_dir, number: int, *, done: bool = True) -> RunDirectory:
    made = RunDirectory.of(runs_dir, identity(number))
    made.create({"seed": number, "optimizer": {"name": "adamw"}}, {"name": f"trial {number}"})
    made.append_event("running", attempt=1)
    if done:
        made.write_result(RESULT)
        made.append_event("completed")
    return made


@pytest.fixture
def runs_dir(tmp_path):
    for number in range(3):
        make_trial(tmp_path / "runs", number)
    return tmp_path / "runs"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'index.sqlite'}"


@pytest.fixture
def index(url):
    with ResultsIndex(url) as opened:
        yield opened


def test_all_trials_are_collected_with_their_numbers(index, runs_dir):
    assert index.collect(runs_dir) == CollectReport(added=3)
    row = index.rows([identity(1)])[0]
    assert row["state"] == "completed"
    assert row["loss"] == RESULT["loss"]
    assert row["flops"] == 6e25
    assert row["attempt"] == 1
    assert row["semantic"] == {"seed": 1, "optimizer": {"name": "adamw"}}
    assert row["descriptive"] == {"name": "trial 1"}
    assert row["result"] == RESULT


def test_a_second_collection_finds_nothing_to_do_and_reads_no_file(index, runs_dir, monkeypatch):
    index.collect(runs_dir)
    monkeypatch.setattr(RunDirectory, "trial", lambda self: pytest.fail("read again"))
    assert index.collect(runs_dir) == CollectReport(unchanged=3)


def test_only_the_trials_asked_for_are_collected(index, runs_dir):
    ids = (identity(number) for number in (0, 2, 77))
    assert index.collect(runs_dir, ids) == CollectReport(added=2)
    assert [row["trial_id"] for row in index.rows()] == [identity(0), identity(2)]


def test_a_changed_trial_is_updated_and_the_others_are_not(index, runs_dir):
    running = make_trial(runs_dir, 3, done=False)
    index.collect(runs_dir)
    running.write_result({"status": "diverged", "loss": None})
    assert index.collect(runs_dir) == CollectReport(updated=1, unchanged=3)
    assert index.states([identity(3)]) == {identity(3): ("diverged", None)}


def test_a_deleted_directory_leaves_the_index(index, runs_dir):
    index.collect(runs_dir)
    shutil.rmtree(RunDirectory.of(runs_dir, identity(1)).path)
    assert index.collect(runs_dir) == CollectReport(unchanged=2, removed=1)
    assert index.rows([identity(1)]) == []


def test_trials_of_other_runs_stay_in_a_shared_store(index, runs_dir, tmp_path):
    index.collect(runs_dir)
    make_trial(tmp_path / "others", 9)
    assert index.collect(tmp_path / "others") == CollectReport(added=1)
    index.rebuild(tmp_path / "others")
    assert len(index.rows()) == 4


def test_a_truncated_result_is_a_problem_and_the_rest_is_collected(index, runs_dir):
    index.collect(runs_dir)
    path = RunDirectory.of(runs_dir, identity(1)).result_path
    path.write_bytes(path.read_bytes()[:10])
    report = index.collect(runs_dir)
    assert (report.unchanged, report.removed) == (2, 1)
    assert list(report.problems) == [identity(1)]
    assert "result.json: is not whole JSON" in report.problems[identity(1)]
    assert index.rows([identity(1)]) == []


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (
            "result.json",
            '{"status": "completed", "loss": "low"}',
            "has loss = 'low', not a value of type float",
        ),
        ("result.json", '{"status": "completed", "steps": 1e3}', "has steps = 1000.0"),
        ("result.json", '{"status": "completed", "steps": 1' + "0" * 30 + "}", "has steps = 1000000"),
        (
            "result.json",
            '{"status": "completed", "flops": 1' + "0" * 400 + "}",
            "has a flops that is too large",
        ),
        ("result.json", '{"status": "completed", "device": "\\u0000"}', "has device"),
        ("result.json", '{"status": "completed", "device": "\\ud800"}', "has device"),
        ("events.jsonl", '{"state": "failed", "time": 7}\n', "has time = 7"),
        ("result.json", '{"status": "completed", "wall_s": 1e999}', "has a wall_s that is too large"),
        ("events.jsonl", '{"state": \n{}\n', "line 1 is not whole JSON"),
        ("trial.json", "{}", "has no object 'semantic'"),
    ],
)
def test_a_corrupt_file_is_a_problem_that_names_it(index, runs_dir, name, content, problem):
    (RunDirectory.of(runs_dir, identity(1)).path / name).write_text(content)
    report = index.collect(runs_dir)
    assert report.added == 2
    assert f"{name}: " in report.problems[identity(1)]
    assert problem in report.problems[identity(1)]


def test_a_directory_without_its_trial_file_is_a_problem(index, runs_dir):
    RunDirectory.of(runs_dir, identity(1)).trial_path.unlink()
    assert "trial.json: is missing" in index.collect(runs_dir).problems[identity(1)]


def test_a_directory_that_is_just_being_made_is_no_problem(index, runs_dir):
    RunDirectory.of(runs_dir, identity(5)).path.mkdir(parents=True)
    assert index.collect(runs_dir) == CollectReport(added=3)


ACTIONS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["create", "event", "finish", "corrupt", "delete", "collect"])
    ),
    max_size=14,
)


def act(runs_dir, number: int, action: str) -> None:
    run_directory = RunDirectory.of(runs_dir, identity(number))
    if action == "create":
        run_directory.create({"seed": number}, {})
    elif not run_directory.path.exists():
        return
    elif action == "event":
        run_directory.append_event("running")
    elif action == "finish" and not run_directory.result_path.exists():
        run_directory.write_result(RESULT)
    elif action == "corrupt":
        run_directory.result_path.write_text("{")
    elif action == "delete":
        shutil.rmtree(run_directory.path)


@settings(deadline=None, max_examples=25)
@given(ACTIONS)
def test_the_rebuilt_index_equals_the_one_that_grew(tmp_path_factory, actions):
    folder = tmp_path_factory.mktemp("grown")
    runs_dir = folder / "runs"
    with ResultsIndex(f"sqlite:///{folder}/grown") as grown, ResultsIndex(f"sqlite:///{folder}/new") as new:
        for number, action in actions:
            if action == "collect":
                grown.collect(runs_dir)
            else:
                act(runs_dir, number, action)
        problems = grown.collect(runs_dir).problems
        assert new.rebuild(runs_dir).problems == problems
        assert new.rows() == grown.rows()
        grown.rebuild(runs_dir)
        assert new.rows() == grown.rows()


def test_more_trials_than_a_statement_takes_parameters_are_found(index, tmp_path):
    ids = [identity(number) for number in range(40_000)]
    make_trial(tmp_path / "runs", 33_333)
    assert index.collect(tmp_path / "runs", ids).added == 1
    assert [row["trial_id"] for row in index.rows(ids)] == [identity(33_333)]


def _collect_at_the_signal(urls, runs_dir, barrier, outcomes):
    for url in urls:
        barrier.wait()
        with ResultsIndex(url) as index:
            report = index.collect(runs_dir)
        outcomes.put(report.added + report.updated + report.unchanged)


def collect_at_once(urls, runs_dir) -> list[int]:
    """Three processes collect into each store at the same time; how many trials each of them saw."""
    barrier, outcomes = SPAWN.Barrier(3, timeout=60), SPAWN.Queue()
    arguments = (urls, runs_dir, barrier, outcomes)
    processes = [SPAWN.Process(target=_collect_at_the_signal, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    return [outcomes.get(timeout=60) for _ in urls for _ in processes]


@pytest.mark.slow
def test_processes_that_collect_at_once_all_succeed(url, tmp_path):
    runs_dir = tmp_path / "runs"
    for number in range(300):
        make_trial(runs_dir, number)
    assert collect_at_once([url], runs_dir) == [300] * 3
    with ResultsIndex(url) as index:
        assert len(index.rows()) == 300
        assert index.collect(runs_dir) == CollectReport(unchanged=300)


@pytest.mark.slow
def test_processes_that_create_an_index_at_once_all_succeed(url, runs_dir):
    urls = [f"{url}-{number}" for number in range(20)]
    assert collect_at_once(urls, runs_dir) == [3] * 60


def set_version(url: str, version: int) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE scalevec_meta SET value = '{version}'")
        connection.exec_driver_sql("DROP TABLE scalevec_trials")
        connection.exec_driver_sql("CREATE TABLE scalevec_trials (another TEXT)")
    engine.dispose()


def test_an_index_of_an_older_version_is_rebuilt(url, runs_dir):
    with ResultsIndex(url) as index:
        index.collect(runs_dir)
    set_version(url, SCHEMA_VERSION - 1)
    with ResultsIndex(url) as index:
        assert index.collect(runs_dir) == CollectReport(added=3)
    with ResultsIndex(url) as index:
        assert index.collect(runs_dir) == CollectReport(unchanged=3)


def test_a_process_that_comes_late_to_an_older_version_drops_nothing(url, runs_dir):
    with ResultsIndex(url) as index:
        index.collect(runs_dir)
        replace_older(sa.create_engine(url), SCHEMA_VERSION - 1)
        assert len(index.rows()) == 3


@pytest.mark.slow
def test_processes_that_open_an_older_version_at_once_all_succeed(url, runs_dir):
    urls = [f"{url}-{number}" for number in range(20)]
    for each in urls:
        ResultsIndex(each).close()
        set_version(each, SCHEMA_VERSION - 1)
    assert collect_at_once(urls, runs_dir) == [3] * 60
    for each in urls:
        with ResultsIndex(each) as index:
            assert len(index.rows()) == 3


def test_an_index_of_a_newer_version_is_refused_untouched_naming_both(url, runs_dir):
    ResultsIndex(url).close()
    set_version(url, SCHEMA_VERSION + 6)
    with pytest.raises(
        StoreError, match=f"version {SCHEMA_VERSION + 6}, this scalevec knows version {SCHEMA_VERSION}"
    ):
        ResultsIndex(url)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        assert connection.execute("SELECT value FROM scalevec_meta").fetchone() == (str(SCHEMA_VERSION + 6),)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "index.sqlite").write_bytes(b"not a database, certainly " * 100)
    with pytest.raises(StoreError, match=r"index\.sqlite: file is not a database"):
        ResultsIndex(f"sqlite:///{tmp_path / 'index.sqlite'}")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("nonsense", "cannot be read; expected sqlite:///PATH or postgresql://"),
        ("postgresql://user:secret@host:port/name", "cannot be read"),
        ("mysql://user:secret@host/name", "'mysql' is not supported"),
        ("mysql://host/name?password=secret", "'mysql' is not supported"),
        ("sqlite:////absent/folder/index.sqlite", "unable to open database file"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_without_its_password(url, problem):
    with pytest.raises(StoreError, match=problem) as caught:
        ResultsIndex(url)
    assert "secret" not in str(caught.value)


def test_an_unreachable_postgresql_is_refused_without_its_password():
    with pytest.raises(
        StoreError, match=r"store postgresql\+psycopg://user:\*\*\*@127\.0\.0\.1:1/name: "
    ) as caught:
        ResultsIndex("postgresql://user:secret@127.0.0.1:1/name")
    assert "secret" not in str(caught.value)


def test_the_default_index_is_in_the_cache_and_one_for_each_runs_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache?%20"))
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    url = default_url(tmp_path / "runs")
    assert url == default_url(tmp_path / "link")
    assert url != default_url(tmp_path / "other")
    make_trial(tmp_path / "runs", 1)
    with ResultsIndex(url) as index:
        index.collect(tmp_path / "runs")
    assert names_in(tmp_path / "runs") == ["trials"]
    assert len(names_in(tmp_path / "cache?%20")) == 1
