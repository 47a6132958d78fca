"""What every executor owes. Each executor's test module imports these tests and brings its own ``site``.

``bench`` makes executors and jobs of a kind: ``completes``, ``crashes`` (exit code ``bench.crash_code``),
``dies`` (a signal), ``listens`` (runs on until it is told to stop, then ends with 75), ``deaf`` (runs on and
does not listen).
"""

import time

PATIENCE_S = 400


def collect(executor, count):
    """Wait until ``count`` jobs have ended: number -> what was said of its end."""
    actual = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(actual) < count:
        assert time.monotonic() < deadline, f"only {actual} ended"
        for item in executor.wait(0.2):
            assert item.number not in actual, "an end is reported once"
            actual[item.number] = item
    return actual


def test_a_job_runs_and_its_end_is_reported_once(bench):
    executor = bench.executor(1)
    (number,) = executor.submit([bench.job("completes")])
    assert collect(executor, 1)[number].exit_code == 0
    assert executor.wait(0.0) == []


def test_numbers_come_in_the_order_of_the_jobs(bench):
    executor = bench.executor(3)
    numbers = executor.submit([bench.job("completes"), bench.job("crashes"), bench.job("completes")])
    assert len(set(numbers)) == 3
    ends = collect(executor, 3)
    assert [ends[number].exit_code for number in numbers] == [0, bench.crash_code, 0]


def test_the_death_of_a_job_is_told_from_its_success(bench):
    executor = bench.executor(1)
    (number,) = executor.submit([bench.job("dies")])
    assert collect(executor, 1)[number].exit_code != 0


def test_a_slot_is_taken_while_a_job_runs_and_free_afterwards(bench):
    executor = bench.executor(2)
    free = executor.free_slots
    executor.submit([bench.job("completes")])
    assert executor.free_slots == free - 1
    collect(executor, 1)
    assert executor.free_slots == free


def test_waiting_with_nothing_to_wait_for_returns(bench):
    assert bench.executor(1).wait(0.0) == []


def test_a_stop_reaches_the_jobs_as_a_request(bench):
    executor = bench.executor(1)
    job = bench.job("listens")
    (number,) = executor.submit([job])
    bench.wait_until_it_runs(job, executor)
    executor.stop()
    end = collect(executor, 1)[number]
    assert end.exit_code == 75 or end.cause == "cancelled"
    assert bench.heard(job)


def test_a_hard_stop_ends_jobs_that_do_not_listen(bench):
    executor = bench.executor(1)
    job = bench.job("deaf")
    (number,) = executor.submit([job])
    bench.wait_until_it_runs(job, executor)
    executor.stop(hard=True)
    assert collect(executor, 1)[number].exit_code != 0
    bench.wait_until_it_is_gone(job)  # the kernel ends what a killed worker leaves, a moment later


def test_cancelling_a_job_leaves_the_others_alone(bench):
    executor = bench.executor(2)
    jobs = [bench.job("listens"), bench.job("listens")]
    numbers = executor.submit(jobs)
    for job in jobs:
        bench.wait_until_it_runs(job, executor)
    executor.cancel(numbers[:1])
    assert set(collect(executor, 1)) == {numbers[0]}
    assert bench.is_running(jobs[1])
    executor.stop(hard=True)


def test_a_job_that_is_cancelled_twice_ends_once_and_one_that_is_over_is_not_touched(bench):
    executor = bench.executor(1)
    job = bench.job("listens")
    (number,) = executor.submit([job])
    bench.wait_until_it_runs(job, executor)
    executor.cancel([number])
    executor.cancel([number])
    assert set(collect(executor, 1)) == {number}
    executor.cancel([number])
    assert executor.wait(0.0) == []
    assert executor.adopt([number]) == set()


def test_a_job_that_nothing_befell_was_not_interrupted(bench):
    executor = bench.executor(1)
    executor.submit([bench.job("completes")])
    collect(executor, 1)
    assert executor.notices() == []


def test_a_job_that_waits_or_runs_can_be_adopted_or_is_gone(bench):
    """A scheduler dies: either its successor watches the job, or nothing of it runs any more."""
    before = bench.executor(1)
    job = bench.job("listens")
    (number,) = before.submit([job])
    bench.wait_until_it_runs(job, before)
    after = bench.executor(1)
    bench.kill_the_scheduler(before)
    adopted = after.adopt([number])
    assert adopted == ({number} if bench.outlives_its_scheduler else set())
    if adopted:
        assert after.free_slots < bench.executor(1).free_slots
        after.cancel([number])
        assert set(collect(after, 1)) == {number}
    bench.wait_until_it_is_gone(job)


def test_numbers_that_mean_nothing_here_are_not_adopted(bench):
    assert bench.executor(1).adopt(["999999", "", "elsewhere/0/0/1/0"]) == set()


def test_a_finished_job_is_not_adopted(bench):
    executor = bench.executor(1)
    numbers = executor.submit([bench.job("completes")])
    collect(executor, 1)
    assert bench.executor(1).adopt(numbers) == set()
