"""An address at which no Ray cluster answers. Nothing here starts one."""

import re
import signal
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("ray")

from scalevec.orchestrator.errors import ClusterLostError, InvalidInputError, MissingRequirementError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.ray import connection
from scalevec.orchestrator.executors.ray.connection import Connection, require_answer
from scalevec.orchestrator.executors.ray.task import run_command
from scalevec.orchestrator.executors.registry import EXECUTORS


@pytest.fixture
def silent_address():
    """Somebody listens, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def nobody():
    """A port of this machine that is taken, so that nobody else gets it, and on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def executor_at(tmp_path):
    return lambda address: EXECUTORS["ray"].build(Site(tmp_path, "small", 1, Profile(address=address)))


def test_an_address_that_nobody_answers_is_lacking(executor_at, nobody):
    message = rf"^no Ray cluster answers at {re.escape(nobody)} \(Connection refused\); start one"
    with pytest.raises(MissingRequirementError, match=message):
        _ = executor_at(nobody).free_slots


def test_an_address_that_is_silent_is_lacking(executor_at, silent_address, monkeypatch):
    monkeypatch.setattr("scalevec.orchestrator.executors.ray.connection.ANSWER_S", 0.2)
    with pytest.raises(MissingRequirementError, match=r"no Ray cluster answers at .* \(timed out\)"):
        _ = executor_at(silent_address).free_slots


@pytest.mark.parametrize("address", ["localhost", "localhost:", "host:99999"])
def test_what_is_no_address_is_refused(executor_at, address):
    with pytest.raises(InvalidInputError, match=r"address is .*; allowed: HOST:PORT of the cluster's head"):
        _ = executor_at(address).free_slots


def test_the_address_of_the_environment_is_asked_first_too(executor_at, nobody, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", nobody)
    with pytest.raises(MissingRequirementError, match=f"no Ray cluster answers at {nobody}"):
        _ = executor_at("auto").free_slots


def test_another_server_is_not_taken_for_ray(monkeypatch):
    monkeypatch.setattr("scalevec.orchestrator.executors.ray.connection.ANSWER_S", 300.0)
    program = "import http.server as h; h.HTTPServer(('127.0.0.1', 0), h.BaseHTTPRequestHandler)"
    kept = program.replace("h.HTTP", "s = h.HTTP", 1)
    code = f"{kept}; print(s.server_port, flush=True); s.serve_forever()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        address = f"127.0.0.1:{int(server.stdout.readline())}"
        with pytest.raises(MissingRequirementError, match="something else than Ray listens there"):
            require_answer(address)
        server.kill()


def test_an_executor_that_is_only_made_connects_to_nothing(executor_at, nobody):
    """``scalevec cancel`` makes one to ask for what is left of another scheduler's jobs."""
    executor = executor_at(nobody)
    assert executor.adopt(["some number"]) == set()
    executor.stop()
    executor.close()


def test_sigterm_means_the_same_once_connected(monkeypatch):
    def connect(_) -> bool:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))
        return True

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Connection, "_connect", connect)
    Connection(None, 1).open()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_cluster_of_our_own_has_room_for_as_many_trials_as_there_are_slots(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    executor = EXECUTORS["ray"].build(Site(tmp_path, "small", 2, cpus=3))
    assert executor._connection._options()["num_cpus"] == 6


@pytest.fixture
def connection_to(monkeypatch):
    """A connection whose head is at an address, and a clock that is set by hand."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(connection.time, "monotonic", lambda: clock.now)

    def to(address: str) -> tuple[Connection, SimpleNamespace]:
        ours = Connection(address, 1)
        host, _, port = address.rpartition(":")
        ours._head = (host, int(port))
        return ours, clock

    return to


def test_a_head_that_is_silent_for_a_while_is_lost_and_is_asked_no_more(connection_to, nobody):
    ours, clock = connection_to(nobody)
    assert not ours.answers()
    clock.now += connection.LOST_AFTER_S - 1
    assert not ours.answers()
    assert not ours.is_lost
    clock.now += 1
    with pytest.raises(ClusterLostError, match=rf"the head of the Ray cluster \({nobody}\) has not answered"):
        ours.answers()
    assert ours.is_lost


def test_a_head_that_answers_again_was_never_lost(connection_to, nobody, silent_address):
    ours, clock = connection_to(nobody)
    there, head = ours._head, connection_to(silent_address)[0]._head
    assert not ours.answers()
    ours._head = head
    clock.now += connection.LOST_AFTER_S - 1
    assert ours.answers()
    ours._head = there
    clock.now += 5
    assert not ours.answers()


def test_a_cluster_that_grows_has_an_address(tmp_path):
    with pytest.raises(InvalidInputError, match="autoscale is true, but the profile has no address"):
        EXECUTORS["ray"].build(Site(tmp_path, "small", 1, Profile(autoscale=True)))


def test_a_question_that_hangs_since_the_head_is_lost_ends_in_our_words(connection_to, nobody, monkeypatch):
    ours, clock = connection_to(nobody)
    monkeypatch.setattr(connection, "LOOK_S", 0.01)
    never = threading.Event()
    assert not ours.answers()

    def hangs() -> None:
        clock.now += connection.LOST_AFTER_S
        never.wait()

    with pytest.raises(ClusterLostError, match="has not answered"):
        ours.ask(hangs)
    never.set()


def test_a_question_returns_its_answer_and_raises_its_own_error(connection_to, nobody):
    ours, _ = connection_to(nobody)
    assert ours.ask(lambda: 3) == 3

    def fails() -> None:
        raise TimeoutError("of the question")

    with pytest.raises(TimeoutError, match="of the question"):
        ours.ask(fails)


def test_a_task_that_ray_runs_as_another_user_than_the_driver_runs_nothing(tmp_path):
    log, where, command = tmp_path / "log.txt", tmp_path / "where", ("touch", str(tmp_path / "ran"))
    with pytest.raises(PermissionError, match=r"the Ray cluster runs tasks as \w+, and you are user 4242"):
        run_command(command, log, where, 1, user=4242)
    assert list(tmp_path.iterdir()) == []
