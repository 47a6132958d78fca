"""The plan fits the terminal, in the order in which trials run, and shows what a queue is given."""

from functools import partial

import pytest

from scalevec.orchestrator.executors.profiles import Profile, RungProfile
from scalevec.orchestrator.sweep import planning
from scalevec.orchestrator.sweep.plan_text import plan_text
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from simulations import sweep_run

SECTIONS = {
    "tokens_per_parameter": [8, 16],
    "grid": {"weight_decay": [0.0, 0.1]},
    "tune": {"learning_rate": [0.01, 0.02], "rungs": ["small"], "seeds": [100]},
}


@pytest.fixture
def run(tmp_path) -> SweepRun:
    return sweep_run(tmp_path / "runs", **SECTIONS)


def text_of(run: SweepRun, **options) -> str:
    return plan_text(run, planning.planned(run), 2, **options)


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_of_the_table_is_wider_than_the_terminal_and_no_number_is_cut(run, width):
    text = text_of(run, width=width)
    lines = [line for line in text.splitlines() if line.startswith(("stage ", "tuning ", "comparison "))]
    assert max(map(len, lines)) <= width
    assert "…" not in text


def test_at_a_terminal_arms_with_equal_plans_share_a_row_and_one_line_says_what_is_detected(run):
    wide, narrow = (text_of(run, width=width).splitlines() for width in (None, 80))
    apart, together = ([line for line in lines if line.startswith("comparison")] for lines in (wide, narrow))
    assert len(apart) == 2 * len(together)
    assert all("baseline, unified" in line for line in together)
    assert sum(int(line.split()[5]) for line in together) == sum(int(line.split()[4]) for line in apart)
    assert sum("detects a difference" in line for line in narrow) == 1


def test_a_narrow_terminal_does_without_whole_columns(run):
    wide, narrow = (text_of(run, width=width).splitlines()[0] for width in (None, 80))
    assert {"vectors", "epochs", "memory", "D/N", "FLOPs"} <= set(wide.split())
    assert {"stage", "rung", "weight_decay", "arm", "trials", "D/N"} <= set(narrow.split())


def test_tuning_stands_before_comparison_and_the_longest_trials_first(run):
    lines = text_of(run).splitlines()
    cells = [line.split() for line in lines if line.startswith(("tuning  ", "comparison  "))]
    assert [cell[0] for cell in cells] == sorted((cell[0] for cell in cells), reverse=True)
    comparison = [cell[1] for cell in cells if cell[0] == "comparison"]
    assert comparison == ["large"] * 8 + ["small"] * 8


def test_budgets_and_grid_values_have_columns_of_their_own(run):
    header, *lines = text_of(run).splitlines()
    assert "weight_decay" in header
    assert "optimizer" not in header
    first = next(line for line in lines if line.startswith("comparison")).split()
    assert dict(zip(header.split(), first, strict=False))["D/N"] in ("8", "16")


def test_without_its_corpus_a_plan_invents_neither_ids_nor_epochs(run):
    rows = planning.without_identity(planning.planned(run))
    assert {(row["trial_id"], row["trunk_id"], row["epochs"]) for row in rows} == {(None, None, None)}


def test_labels_tell_budgets_and_grid_values_apart(run):
    labels = [run.label(member) for member in run.members()]
    assert len(set(labels)) == len(labels)
    assert labels[0] == ("baseline small 8 tokens/parameter weight_decay 0.0 seed 100 learning rate 0.01")


@pytest.fixture
def run_with(tmp_path):
    return partial(sweep_run, tmp_path / "runs")


def queue_of(run: SweepRun, *, seconds: float | None = None):
    rows = planning.planned(run)
    if seconds is not None:
        rows = [row | {"seconds": seconds} for row in rows]
    return planning.queued_rungs(run, rows)


def test_trials_that_share_a_job_are_one_job(run_with):
    small = RungProfile(trials_per_job=3)
    queue = queue_of(run_with(Profile(max_parallel=2, rungs={"small": small})))
    trials = {rung.rung: len(rung.rows) for rung in queue}
    expected = {"small": -(-trials["small"] // 3), "large": trials["large"]}
    assert {rung.rung: rung.jobs for rung in queue} == expected
    assert {rung.at_a_time for rung in queue} == {2}
    assert planning.most_at_a_time(queue) == 4  # each rung is an array of its own


def test_max_submitted_bounds_what_runs_at_a_time(run_with):
    queue = queue_of(run_with(Profile(max_submitted=1)))
    assert all(rung.at_a_time == 1 for rung in queue)
    assert planning.most_at_a_time(queue) == 1


def test_a_trial_longer_than_its_partition_allows_is_started_again_and_so_counted(run_with):
    queue = queue_of(run_with(Profile(gpus=1, max_time=60)), seconds=5 * 3600.0)
    for rung in queue:
        assert (rung.minutes, rung.starts) == (60, 6)  # start-up and notice take some minutes of each hour
        assert rung.most_gpu_hours == 6 * rung.jobs
    assert "1 h 0 min, 6 starts" in planning.jobs_table(queue)[1]


def test_gpu_hours_by_rung_add_up_to_those_of_the_plan(run_with):
    run = run_with(Profile(gpus=1, time=60))
    queue = queue_of(run)
    hours = planning.gpu_hours(planning.planned(run))
    assert sum(planning.gpu_hours(rung.rows) for rung in queue) == pytest.approx(hours)
    assert "GPU-hours" in planning.jobs_table(queue)[0]


def test_rungs_run_side_by_side_and_stages_one_after_the_other(run_with):
    tune = {"learning_rate": [0.01, 0.02], "rungs": ["small"]}
    queue = queue_of(run_with(Profile(max_parallel=1), tune=tune), seconds=10.0)
    by_stage = {rung.stage: 10.0 * len(rung.rows) for rung in sorted(queue, key=lambda rung: len(rung.rows))}
    assert planning.seconds_left(queue) == sum(by_stage.values())


def test_the_plan_shows_jobs_limits_and_the_parallelism_of_the_profile(run_with):
    run = run_with(Profile(max_parallel=3, gpus=1, time=90))
    shown = text_of(run, in_queue=True).splitlines()
    (header,) = [line for line in shown if "at a time" in line and "jobs" in line and "limit" in line]
    first = shown[shown.index(header) + 1].split()
    assert first[:2] == ["comparison", "small"]
    assert "1 h 30 min" in shown[shown.index(header) + 1]
    assert "left with 6 jobs at a time, without waits in the queue" in "\n".join(shown)
    assert "limit" not in text_of(run)


def test_trials_that_share_a_gpu_cost_their_share_of_it(run_with):
    alone, shared = (queue_of(run_with(Profile(gpus=1, trials_per_gpu=n))) for n in (1, 2))
    assert [rung.jobs for rung in shared] == [-(-rung.jobs // 2) for rung in alone]
    assert planning.gpu_hours(shared[0].rows) == pytest.approx(planning.gpu_hours(alone[0].rows) / 2)
