"""Who may run a trial: exactly one living process, and its successor once it is dead."""

import json
import multiprocessing
import os
import signal

import pytest

from scalevec.results.claims import AlreadyClaimedError, ClaimObserver, acquire, claim_record, end_claim
from scalevec.results.run_directory import RunDirectory

SPAWN = multiprocessing.get_context("spawn")
PATIENCE_S = 300


def make_foreign(run_directory, attempt=1, **identity) -> None:
    """Rewrite a claim as one of another machine whose clock is years ahead."""
    path = run_directory.claims_path / f"{attempt:04d}.json"
    record = json.loads(path.read_text())
    foreign = {"host": "elsewhere", "boot_id": "other", "time": "2099-01-01T00:00:00+00:00"}
    path.write_text(json.dumps({**record, **(identity or foreign)}))


@pytest.fixture
def foreign(run_directory):
    """A claim of another machine."""
    claim = acquire(run_directory, {})
    make_foreign(run_directory)
    return claim


def test_the_first_claim_is_attempt_one_and_says_whose(run_directory):
    claim = acquire(run_directory, {"executor": "local"})
    assert claim.attempt == 1
    record = claim_record(run_directory, 1)
    assert record["pid"] == os.getpid()
    assert record["executor"] == "local"
    assert record["attempt"] == 1
    assert claim.is_current()


def test_a_released_claim_gives_way_to_the_next_attempt(run_directory):
    first = acquire(run_directory, {})
    first.release()
    first.release()
    assert acquire(run_directory, {}).attempt == 2
    assert not first.is_current()


def test_a_claim_in_a_deleted_directory_is_not_current(run_directory):
    claim = acquire(run_directory, {})
    run_directory.path.rename(run_directory.path.with_name("gone"))
    assert not claim.is_current()


def _claim_and_wait(path, claimed):
    acquire(RunDirectory(path), {})
    claimed.set()
    signal.pause()


@pytest.fixture
def owner(run_directory):
    """Another process of this machine that holds the claim."""
    claimed = SPAWN.Event()
    process = SPAWN.Process(target=_claim_and_wait, args=(run_directory.path, claimed))
    process.start()
    assert claimed.wait(PATIENCE_S)
    yield process
    process.kill()
    process.join()


def test_the_claim_of_a_living_process_is_refused_without_beats(run_directory, owner, clock, observer):
    assert observer.is_alive(run_directory)
    clock.seconds = 10_000
    with pytest.raises(AlreadyClaimedError, match=f"process {owner.pid} "):
        acquire(run_directory, {}, observer)


def test_a_killed_process_that_nobody_waited_for_is_dead(run_directory, owner):
    os.kill(owner.pid, signal.SIGKILL)
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # a zombie now, and still one afterwards
    assert acquire(run_directory, {}).attempt == 2


def test_a_stopped_process_keeps_its_claim_on_its_own_machine(run_directory, owner):
    os.kill(owner.pid, signal.SIGSTOP)
    assert ClaimObserver().is_alive(run_directory)


def test_a_reused_process_number_is_not_the_owner(run_directory):
    acquire(run_directory, {})
    record = claim_record(run_directory, 1)
    make_foreign(run_directory, process_start=str(int(record["process_start"]) - 1))
    assert acquire(run_directory, {}).attempt == 2


@pytest.mark.parametrize("name", ["host", "boot_id", "pid_namespace"])
def test_a_claim_of_another_machine_boot_or_container_is_not_judged_by_pid(run_directory, name, observer):
    acquire(run_directory, {})
    make_foreign(run_directory, **{name: "other", "pid": 2**22 + 1})
    assert observer.is_alive(run_directory)


@pytest.mark.parametrize("year", ["1970", "2099"])
def test_clocks_that_disagree_neither_prolong_nor_shorten_a_claim(run_directory, clock, observer, year):
    acquire(run_directory, {})
    make_foreign(run_directory, host="elsewhere", time=f"{year}-01-01T00:00:00+00:00")
    stamp = 0 if year == "1970" else 2**32
    for path in run_directory.claims_path.iterdir():
        os.utime(path, (stamp, stamp))
    assert observer.is_alive(run_directory)
    clock.seconds = 179.9
    assert observer.is_alive(run_directory)
    clock.seconds = 180
    assert not observer.is_alive(run_directory)
    assert acquire(run_directory, {}, observer).is_current()


def test_a_beat_renews_a_foreign_claim_from_when_it_was_seen(run_directory, foreign, clock, observer):
    observer.is_alive(run_directory)
    foreign.beat()
    clock.seconds = 500  # the observer was away: the beat is new to it now
    assert observer.is_alive(run_directory)
    clock.seconds = 679
    assert observer.is_alive(run_directory)
    clock.seconds = 680
    assert not observer.is_alive(run_directory)


@pytest.mark.usefixtures("foreign")
def test_each_attempt_is_watched_for_a_lease_of_its_own(run_directory, clock, observer):
    observer.is_alive(run_directory)
    clock.seconds = 200
    acquire(run_directory, {}, observer)
    make_foreign(run_directory, attempt=2)
    assert observer.is_alive(run_directory)


def test_an_owner_that_outlived_its_lease_finds_its_successor(run_directory, foreign, clock, observer):
    observer.is_alive(run_directory)
    clock.seconds = 180
    successor = acquire(run_directory, {}, observer)
    foreign.beat()
    assert not foreign.is_current()
    assert successor.is_current()


def test_an_observer_that_knows_better_ends_a_claim_for_all(run_directory, foreign):
    end_claim(run_directory, 1, "the job is gone")
    assert not foreign.is_current()
    assert acquire(run_directory, {}).attempt == 2


def test_a_counter_left_by_a_process_killed_before_its_claim_is_used(run_directory):
    run_directory.claims_path.mkdir()
    (run_directory.claims_path / "0001.beat").write_bytes(b"")
    claim = acquire(run_directory, {})
    claim.beat()
    claim.beat()
    assert int((run_directory.claims_path / "0001.beat").read_text()) == 2


def _race(path, rounds, barrier, outcomes):
    for number in range(rounds):
        run_directory = RunDirectory.of(path, f"{number:064x}")
        barrier.wait()
        try:
            claim = acquire(run_directory, {})
        except AlreadyClaimedError:
            outcomes.put((number, None))
        else:
            outcomes.put((number, claim.attempt))
    barrier.wait()  # nobody dies, and so frees a claim, before all have tried


def test_of_processes_that_race_for_an_attempt_exactly_one_wins(tmp_path):
    rounds, racers = 20, 3
    barrier, outcomes = SPAWN.Barrier(racers), SPAWN.Queue()
    args = (tmp_path, rounds, barrier, outcomes)
    processes = [SPAWN.Process(target=_race, args=args) for _ in range(racers)]
    for process in processes:
        process.start()
    actual = [outcomes.get(timeout=PATIENCE_S) for _ in range(rounds * racers)]
    for process in processes:
        process.join()
    wins = [(number, attempt) for number, attempt in actual if attempt is not None]
    assert sorted(wins) == [(number, 1) for number in range(rounds)]


@pytest.mark.parametrize("content", [b"", b"\0" * 21, b"garbage"])
def test_a_counter_that_was_damaged_beats_again(content, run_directory):
    claim = acquire(run_directory, {})
    path = run_directory.claims_path / "0001.beat"
    path.write_bytes(content)
    claim.beat()
    assert path.read_bytes() != content


@pytest.mark.usefixtures("foreign")
def test_a_claim_whose_counter_is_lost_is_stale_after_a_lease(run_directory, clock, observer):
    (run_directory.claims_path / "0001.beat").unlink()
    assert observer.is_alive(run_directory)
    clock.seconds += 181
    assert not observer.is_alive(run_directory)
