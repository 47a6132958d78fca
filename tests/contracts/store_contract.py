"""What every store owes. Each store's test module imports these tests and brings its own ``url`` fixture:
the URL of an empty store, made by ``new_url`` where a test needs several.
"""

import multiprocessing
import os
import shutil
from hashlib import shake_256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalevec.results.index.store import CollectReport, ResultsIndex
from scalevec.results.run_directory import RunDirectory
from scalevec.results.runs_identity import RUNS_ID

SPAWN = multiprocessing.get_context("spawn")
COLLECTORS = 3
PATIENCE_S = 600
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


def make_trial(runs_dir: Path, number: int, *, done: bool = True) -> RunDirectory:
    directory = RunDirectory.of(runs_dir, identity(number))
    directory.create({"seed": number, "optimizer": {"name": "adamw"}}, {"name": f"trial {number}"})
    directory.append_event("running", attempt=1)
    if done:
        directory.write_result(RESULT)
        directory.append_event("completed")
    return directory


@pytest.fixture
def runs_dir(tmp_path):
    for number in range(3):
        make_trial(tmp_path / "runs", number)
    return tmp_path / "runs"


@pytest.fixture
def index(url):
    with ResultsIndex(url) as opened:
        yield opened


def test_all_trials_are_collected_with_their_numbers(index, runs_dir):
    assert index.collect(runs_dir) == CollectReport(added=3)
    row = index.rows(runs_dir, [identity(1)])[0]
    assert row["state"] == "completed"
    assert row["loss"] == RESULT["loss"]
    assert row["flops"] == 6e25
    assert row["semantic"] == {"seed": 1, "optimizer": {"name": "adamw"}}
    assert row["descriptive"] == {"name": "trial 1"}
    assert row["result"] == RESULT


def test_the_losses_of_blocks_are_kept_to_the_digits_of_float32(index, tmp_path):
    directory = make_trial(tmp_path / "runs", 1, done=False)
    directory.write_result({**RESULT, "loss_blocks": [5.1234567891, 4.0], "block_tokens": [128, 100]})
    index.collect(tmp_path / "runs")
    (row,) = index.rows(tmp_path / "runs")
    assert (row["loss_blocks"], row["block_tokens"]) == ("[5.1234568, 4.0]", "[128, 100]")


def test_where_the_time_of_a_run_went_is_in_its_row_where_that_is_known(index, tmp_path):
    timing = {"step_s": {"p5": 0.1, "p50": 0.2, "p95": 0.4}, "data_s": 1.5, "checkpoints_s": 0.25}
    times = {"evaluation_s": 3.0, "mfu": None, "allocated_bytes": None}
    for number, result in enumerate((RESULT, {**RESULT, "timing": timing | times})):
        make_trial(tmp_path, number, done=False).write_result(result)
    index.collect(tmp_path)
    names = ("step_s_median", "data_s", "checkpoints_s", "evaluation_s", "mfu")
    earlier, row = ([row.get(name) for name in names] for row in index.rows(tmp_path))
    assert earlier == [None] * 5
    assert row == [0.2, 1.5, 0.25, 3.0, None]


def test_any_text_that_json_holds_comes_back(index, tmp_path):
    odd = {"name": "\0 \ud800 ü 漢 '; DROP TABLE scalevec_trials; --", "none": None}
    RunDirectory.of(tmp_path, identity(1)).create({"seed": 1}, odd)
    index.collect(tmp_path)
    assert index.rows(tmp_path)[0]["descriptive"] == odd
    assert index.rows(tmp_path)[0]["result"] is None


def test_a_row_says_which_machine_and_code_trained_it(index, runs_dir):
    attempt = {"cpu_model": "A", "threads": 2, "versions": {"torch": "2.13.0"}, "commit": "c" * 40}
    for record in (attempt, attempt | {"cpu_model": "B"}, attempt):  # it went on elsewhere, and came back
        RunDirectory.of(runs_dir, identity(1)).write_environment(record)
    index.collect(runs_dir)
    known, unknown = (index.rows(runs_dir, [identity(number)])[0] for number in (1, 2))
    names = ("cpu_model", "threads", "torch_version", "commit", "gpu", "local_changes")
    assert [known[name] for name in names] == ["A; B", "2", "2.13.0", "c" * 40, None, None]
    assert [unknown[name] for name in names] == [None] * 6


@pytest.mark.parametrize(
    "content", ["[1]", "{", '[{"versions": [1]}]', '[{"versions": "2"}]', '[{"gpu": "\\u0000"}]']
)
def test_a_damaged_environment_is_a_problem_at_each_look_until_it_is_gone(index, runs_dir, content):
    directory = RunDirectory.of(runs_dir, identity(1))
    directory.environment_path.write_text(content)
    for _ in range(2):
        assert str(directory.environment_path) in index.collect(runs_dir).problems[identity(1)]
    assert index.rows(runs_dir, [identity(1)]) == []
    directory.environment_path.unlink()
    assert not index.collect(runs_dir).problems
    (row,) = index.rows(runs_dir, [identity(1)])
    assert (row["loss"], row["cpu_model"]) == (RESULT["loss"], None)


def test_a_second_collection_finds_nothing_to_do_and_reads_no_file(index, runs_dir, monkeypatch):
    index.collect(runs_dir)
    monkeypatch.setattr(RunDirectory, "trial", lambda self: pytest.fail("read again"))
    assert index.collect(runs_dir) == CollectReport(unchanged=3)


def test_a_row_that_is_written_again_stays_one_row(url, runs_dir):
    with ResultsIndex(url) as first, ResultsIndex(url) as second:
        for index in (first, second, first):
            index.rebuild(runs_dir)
        assert first.rows(runs_dir) == second.rows(runs_dir)
        assert len(second.rows(runs_dir)) == 3


def test_only_the_trials_asked_for_are_collected(index, runs_dir):
    ids = (identity(number) for number in (0, 2, 77))
    assert index.collect(runs_dir, ids) == CollectReport(added=2)
    assert [row["trial_id"] for row in index.rows(runs_dir)] == [identity(0), identity(2)]


def test_a_changed_trial_is_updated_and_the_others_are_not(index, runs_dir):
    running = make_trial(runs_dir, 3, done=False)
    index.collect(runs_dir)
    running.write_result({"status": "diverged", "loss": None})
    assert index.collect(runs_dir) == CollectReport(updated=1, unchanged=3)
    assert index.states(runs_dir, [identity(3)]) == {identity(3): "diverged"}


def test_the_states_of_many_trials_are_those_of_each(index, runs_dir):
    make_trial(runs_dir, 3, done=False)
    index.collect(runs_dir)
    completed = dict.fromkeys(map(identity, range(3)), "completed")
    assert index.states(runs_dir) == completed | {identity(3): "running"}
    expected = {identity(1): "completed", identity(3): "running"}
    assert index.states(runs_dir, map(identity, (1, 3, 77))) == expected


@pytest.mark.parametrize("stamp", [1, 2**32])
def test_a_change_counts_whatever_the_clock_of_another_machine_says(index, runs_dir, stamp):
    index.collect(runs_dir)
    directory = RunDirectory.of(runs_dir, identity(1))
    directory.append_event("completed", note="again")
    for path in (directory.events_path, directory.result_path):
        os.utime(path, (stamp, stamp))
    assert index.collect(runs_dir) == CollectReport(updated=1, unchanged=2)


def test_a_deleted_directory_leaves_the_index(index, runs_dir):
    index.collect(runs_dir)
    shutil.rmtree(RunDirectory.of(runs_dir, identity(1)).path)
    assert index.collect(runs_dir) == CollectReport(unchanged=2, removed=1)
    assert index.rows(runs_dir, [identity(1)]) == []


def test_runs_that_share_a_store_do_not_mix(index, runs_dir, tmp_path):
    """Even where they hold trials of the same identity."""
    index.collect(runs_dir)
    for number in (1, 9):
        make_trial(tmp_path / "others", number, done=False)
    assert index.collect(tmp_path / "others") == CollectReport(added=2)
    assert index.states(runs_dir)[identity(1)] == "completed"
    assert index.states(tmp_path / "others")[identity(1)] == "running"
    index.rebuild(tmp_path / "others")
    assert len(index.rows(runs_dir)) == 3
    assert [row["trial_id"] for row in index.rows(tmp_path / "others")] == [identity(1), identity(9)]


def test_the_same_path_on_two_machines_is_two_sets_of_runs(index, runs_dir):
    index.collect(runs_dir)
    here = runs_dir.rename(runs_dir.with_name("this machine"))
    make_trial(runs_dir, 5)
    assert index.collect(runs_dir) == CollectReport(added=1)
    runs_dir.rename(runs_dir.with_name("the other machine"))
    here.rename(runs_dir)
    assert index.collect(runs_dir) == CollectReport(unchanged=3)


def test_runs_that_nobody_may_write_into_are_known_by_their_path(index, runs_dir):
    (runs_dir / RUNS_ID).mkdir()
    assert index.collect(runs_dir) == CollectReport(added=3)
    assert index.collect(runs_dir) == CollectReport(unchanged=3)


def test_a_truncated_result_is_a_problem_and_the_rest_is_collected(index, runs_dir):
    index.collect(runs_dir)
    path = RunDirectory.of(runs_dir, identity(1)).result_path
    path.write_bytes(path.read_bytes()[:10])
    report = index.collect(runs_dir)
    assert (report.unchanged, report.removed) == (2, 1)
    assert list(report.problems) == [identity(1)]
    assert "result.json: is not whole JSON" in report.problems[identity(1)]
    assert index.rows(runs_dir, [identity(1)]) == []


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
        ("result.json", '{"status": "completed", "loss_blocks": 5.0}', "has loss_blocks = 5.0, not a list"),
        ("result.json", '{"status": "completed", "block_tokens": [1.5]}', "has block_tokens = 1.5"),
        ("result.json", '{"status": "completed", "device": "\\u0000"}', "has device"),
        ("result.json", '{"status": "completed", "device": "\\ud800"}', "has device"),
        ("result.json", '{"status": "completed", "wall_s": 1e999}', "has a wall_s that is too large"),
        ("result.json", '{"status": "completed", "timing": {"mfu": "half"}}', "has mfu = 'half'"),
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


@pytest.mark.parametrize("at_once", [1, 20_000])
def test_the_present_states_are_those_of_the_directories(index, runs_dir, monkeypatch, at_once):
    monkeypatch.setattr("scalevec.results.index.store.ALL_AT_ONCE", at_once)
    ids = [identity(number) for number in range(5)]
    running = make_trial(runs_dir, 3, done=False)
    open_trials = {identity(3): "running", identity(4): "pending"}
    done = dict.fromkeys(ids[:3], "completed")
    assert index.current_states(runs_dir, ids) == (done | open_trials, {})
    running.append_event("pending", cause=shake_256().hexdigest(10_000))
    assert index.current_states(runs_dir, ids) == (done | open_trials | {identity(3): "pending"}, {})


def test_a_result_that_was_taken_away_is_noticed_in_the_present_states(index, runs_dir):
    ids = [identity(number) for number in range(3)]
    index.collect(runs_dir)
    shutil.rmtree(RunDirectory.of(runs_dir, identity(0)).path)
    RunDirectory.of(runs_dir, identity(1)).result_path.write_text("{")
    RunDirectory.of(runs_dir, identity(1)).set_aside_result()
    again = RunDirectory.of(runs_dir, identity(2))
    again.result_path.unlink()
    again.write_result({**RESULT, "status": "diverged"})
    states, problems = index.current_states(runs_dir, ids)
    assert states == {ids[0]: "pending", ids[1]: "pending", ids[2]: "diverged"}
    assert not problems


def test_what_cannot_be_read_has_no_present_state_but_a_reason(index, runs_dir):
    RunDirectory.of(runs_dir, identity(1)).events_path.write_text("{}\n")
    states, problems = index.current_states(runs_dir, [identity(1), identity(2)])
    assert states == {identity(2): "completed"}
    assert "events.jsonl" in problems[identity(1)]


def act(runs_dir: Path, number: int, action: str) -> None:
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


NUMBERS = st.integers(0, 3)
CHANGES = st.tuples(NUMBERS, st.sampled_from(["create", "event", "finish", "corrupt", "delete"]))
LOOKS = st.tuples(NUMBERS, st.sampled_from(["collect", "collect one", "states"]))


@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(CHANGES | LOOKS, max_size=14))
def test_the_rebuilt_index_equals_the_one_that_grew(index, tmp_path_factory, actions):
    runs_dir = tmp_path_factory.mktemp("grown") / "runs"
    everything = [identity(number) for number in range(4)]
    for number, action in actions:
        if action == "collect":
            index.collect(runs_dir)
        elif action == "collect one":
            index.collect(runs_dir, [identity(number)])
        elif action == "states":
            index.current_states(runs_dir, everything)
        else:
            act(runs_dir, number, action)
    problems = index.collect(runs_dir).problems
    grown = index.rows(runs_dir)
    assert index.rebuild(runs_dir).problems == problems
    assert index.rows(runs_dir) == grown
    states, unreadable = index.current_states(runs_dir, everything)
    assert unreadable == problems
    readable = [name for name in everything if name not in problems]
    assert states == {name: RunDirectory.of(runs_dir, name).state().state for name in readable}


def test_more_trials_than_a_statement_takes_parameters_are_found(index, tmp_path):
    ids = [identity(number) for number in range(40_000)]
    make_trial(tmp_path / "runs", 33_333)
    assert index.collect(tmp_path / "runs", ids).added == 1
    assert [row["trial_id"] for row in index.rows(tmp_path / "runs", ids)] == [identity(33_333)]


def test_records_that_several_threads_read_are_the_same(index, runs_dir, monkeypatch):
    index.collect(runs_dir)
    alone = index.rows(runs_dir)
    RunDirectory.of(runs_dir, identity(1)).result_path.write_text("{")
    problems = index.rebuild(runs_dir).problems
    monkeypatch.setattr("scalevec.results.index.rows.PART", 1)
    monkeypatch.setattr("scalevec.results.index.rows.SLOW_S", 0.0)
    assert index.rebuild(runs_dir).problems == problems
    assert index.rows(runs_dir) == [row for row in alone if row["trial_id"] != identity(1)]


def _collect_at_the_signal(urls, runs_dir, barrier, outcomes):
    for url in urls:
        barrier.wait()
        with ResultsIndex(url) as index:
            report = index.collect(runs_dir)
        outcomes.put(report.added + report.updated + report.unchanged)


def collect_at_once(urls: list[str], runs_dir: Path) -> list[int]:
    """Several processes collect into each store at the same time; how many trials each of them saw."""
    barrier, outcomes = SPAWN.Barrier(COLLECTORS, timeout=PATIENCE_S), SPAWN.Queue()
    arguments = (urls, runs_dir, barrier, outcomes)
    processes = [SPAWN.Process(target=_collect_at_the_signal, args=arguments) for _ in range(COLLECTORS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * COLLECTORS
    return [outcomes.get(timeout=PATIENCE_S) for _ in urls for _ in processes]


@pytest.mark.slow
def test_processes_that_create_an_index_and_collect_at_once_all_succeed(new_url, tmp_path):
    runs_dir, urls = tmp_path / "runs", [new_url() for _ in range(10)]
    for number in range(50):
        make_trial(runs_dir, number)
    assert collect_at_once(urls, runs_dir) == [50] * COLLECTORS * len(urls)
    with ResultsIndex(urls[0]) as index:
        assert len(index.rows(runs_dir)) == 50
        assert index.collect(runs_dir) == CollectReport(unchanged=50)
