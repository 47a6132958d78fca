"""Workers that a server forks: as much on their own as fresh ones, without the seconds of loading torch."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

import light_fork_server
from contracts.executor_contract import collect
from scalevec.model.config import RunOptions
from scalevec.orchestrator.attempts.jobs import STOP_SIGNALS, WORKER, Job, ResourceRequest, worker_command
from scalevec.orchestrator.executors import forked_workers as forks
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.forked_workers import ForkServer, ServerGoneError, worker_environment
from scalevec.orchestrator.executors.local.local_executor import LocalExecutor
from scalevec.results.claims import process_lives
from scalevec.results.run_directory import RunDirectory, trial_ids
from support import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are served on Linux alone")
PATIENCE_S = 300


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """No server is given up because the machine was busy for ten seconds."""
    for name in ("LOADING_S", "ANSWER_S"):
        monkeypatch.setattr(forks, name, PATIENCE_S)


@pytest.fixture
def light(monkeypatch):
    """New servers load no torch."""
    monkeypatch.setattr(forks, "FORK_SERVER", light_fork_server.COMMAND)


@pytest.fixture
def server(light):
    """For a test that ends it, or harms it."""
    with closing(ForkServer(worker_environment())) as server:
        yield server


@pytest.fixture(scope="module")
def shared():
    """For tests that only use it."""
    with closing(ForkServer(worker_environment())) as server:
        yield server


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.txt"


def forked(server, log, *arguments):
    with log.open("ab") as stream:
        return server.fork(arguments, stream)


class WaitingWorker:
    """A real worker that stands still: its log is a pipe that is full, and it prints its help."""

    def __init__(self, server) -> None:
        reader, writer = os.pipe()
        self._ends = [os.fdopen(reader, "rb"), os.fdopen(writer, "wb", buffering=0)]
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writer, b".")
        os.set_blocking(writer, True)
        self.process = server.fork(["--help"], self._ends[1])
        self.identity = self.process.identity

    def close(self):
        for end in self._ends:
            end.close()


@pytest.fixture
def waiting(server):
    with closing(WaitingWorker(server)) as worker:
        yield worker


@pytest.fixture
def waiting_of_shared(shared):
    with closing(WaitingWorker(shared)) as worker:
        yield worker


@pytest.fixture
def without_a_library(light, monkeypatch):
    """A machine on which no server can load."""
    lacking = (sys.executable, "-c", "raise ImportError('not on this machine')")
    monkeypatch.setattr(forks, "FORK_SERVER", lacking)


def test_one_server_serves_many_and_tells_each_end_apart_with_a_log_for_each(shared, tmp_path):
    arguments = (["--help"], ["--nonsense"], ["--help"])
    processes = [forked(shared, tmp_path / f"{i}.txt", *given) for i, given in enumerate(arguments)]
    wait_until(lambda: sum(process.ended() for process in processes) == 3)
    assert [process.exit_code for process in processes] == [0, 2, 0]
    assert len({process.identity["pid"] for process in processes}) == 3
    assert "the following arguments are required" in (tmp_path / "1.txt").read_text()


def test_a_forked_worker_leads_a_session_of_its_own_and_shows_its_command(waiting_of_shared):
    process = psutil.Process(waiting_of_shared.identity["pid"])
    wait_until(lambda: process.cmdline()[: len(WORKER)] == list(WORKER))
    assert os.getsid(process.pid) == process.pid
    assert process.cmdline()[len(WORKER) :] == ["--help"]


def test_a_forked_worker_has_neither_the_servers_connection_nor_its_view_of_others(shared, waiting_of_shared):
    with closing(WaitingWorker(shared)) as other:
        process = psutil.Process(other.identity["pid"])
        wait_until(lambda: process.cmdline()[: len(WORKER)] == list(WORKER))
        targets = [str(entry.readlink()) for entry in Path(f"/proc/{process.pid}/fd").iterdir()]
    assert not [name for name in targets if name.startswith(("socket:", "anon_inode:"))]


def test_forked_workers_outlive_a_server_that_is_killed(server, waiting):
    os.kill(server._process.pid, signal.SIGKILL)
    wait_until(lambda: not waiting.process.ended() and server.gone)
    assert process_lives(waiting.identity)
    os.kill(waiting.identity["pid"], signal.SIGKILL)
    wait_until(waiting.process.ended)
    assert waiting.process.exit_code is None


@pytest.mark.usefixtures("light")
def test_workers_of_a_bound_server_die_with_it():
    with (
        closing(ForkServer(worker_environment(), bound=True)) as server,
        closing(WaitingWorker(server)) as worker,
    ):
        os.kill(server._process.pid, signal.SIGKILL)
        wait_until(worker.process.ended)
        assert worker.process.exit_code is None
        assert not process_lives(worker.identity)


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_request_to_stop_that_reaches_the_server_too_does_not_end_it(log, number):
    with closing(ForkServer(worker_environment(), bound=True)) as server:
        os.kill(server._process.pid, number)
        with closing(WaitingWorker(server)) as worker:
            os.kill(server._process.pid, number)
            assert process_lives(worker.identity)
            os.kill(worker.identity["pid"], signal.SIGTERM)
            wait_until(worker.process.ended)
        assert worker.process.exit_code == -signal.SIGTERM
        assert not server.gone


def test_a_server_that_is_silent_of_a_death_is_given_up(server, waiting, monkeypatch):
    monkeypatch.setattr(forks, "LOOK_S", 0.1)
    os.kill(server._process.pid, signal.SIGSTOP)
    os.kill(waiting.identity["pid"], signal.SIGKILL)
    wait_until(waiting.process.ended)
    assert server.gone
    assert waiting.process.exit_code is None


def test_a_server_that_stalls_keeps_nobody_waiting_for_long(server, waiting, log, monkeypatch):
    monkeypatch.setattr(forks, "ANSWER_S", 0.1)
    os.kill(server._process.pid, signal.SIGSTOP)
    with pytest.raises(ServerGoneError):
        forked(server, log, "--help")
    assert server.gone


@pytest.mark.usefixtures("light")
def test_nothing_is_forked_for_an_owner_who_left_while_the_server_was_loading(log):
    server = ForkServer(worker_environment())
    with log.open("ab") as stream:
        socket.send_fds(server._connection, [b'["--nonsense"]'], [stream.fileno()])
    server._connection.close()
    assert server._process.wait(PATIENCE_S) == 0
    assert log.read_bytes() == b""


@pytest.mark.usefixtures("light")
def test_a_server_hears_of_ends_where_its_owner_ignores_those_of_children(log):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        server = ForkServer(worker_environment())
    finally:
        signal.signal(signal.SIGCHLD, before)
    process = forked(server, log, "--nonsense")
    wait_until(process.ended)
    assert process.exit_code == 2
    server.close()


def test_forked_workers_outlive_a_server_that_is_closed(server, waiting):
    server.close()
    assert not waiting.process.ended()
    os.kill(waiting.identity["pid"], signal.SIGKILL)
    wait_until(waiting.process.ended)


def test_a_server_ends_when_its_owner_is_killed():
    owner = f"""
import os
from scalevec.orchestrator.executors.forked_workers import worker_environment
from scalevec.orchestrator.executors import forked_workers
forked_workers.FORK_SERVER = {light_fork_server.COMMAND}
server = forked_workers.ForkServer(worker_environment())
with open(os.devnull, "ab") as log:
    server.fork(["--help"], log)
print(server._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", owner], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until(lambda: not process_lives({"pid": int(done.stdout)}))


@pytest.mark.usefixtures("light")
def test_a_server_has_the_variables_that_a_worker_is_to_start_with():
    with closing(ForkServer(worker_environment(cpus=2))) as server:
        process = psutil.Process(server._process.pid)
        wait_until(process.environ)  # the kernel shows none until the new program is in place
        assert process.environ()["OMP_NUM_THREADS"] == "2"


def is_server(child):
    """Whether a process is one that lives; it may end while it is asked."""
    with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
        return child.cmdline()[1:] == list(forks.FORK_SERVER[1:])
    return False


@pytest.mark.usefixtures("light")
class TestLocalExecutor:
    @pytest.fixture
    def executor(self, tmp_path):
        self.others = set(psutil.Process().children())
        executor = LocalExecutor(Site(tmp_path, "sweep", 4))
        yield executor
        executor.stop(hard=True)
        executor.close()

    def job(self, folder, number, *arguments, **fields):
        directory = folder / str(number)
        directory.mkdir()
        return Job("0" * 64, (*WORKER, *arguments), directory, **fields)

    def servers(self):
        """Those of the executor of this test that live."""
        children = set(psutil.Process().children()) - self.others
        return [child for child in children if is_server(child)]

    def ends(self, executor, count):
        return {number: end.exit_code for number, end in collect(executor, count).items()}

    def test_workers_with_other_threads_have_a_server_of_their_own(self, executor, tmp_path):
        requests = [ResourceRequest(cpus=cpus) for cpus in (1, 2)]
        executor.submit([self.job(tmp_path, each.cpus, "--help", request=each) for each in requests])
        assert len(self.servers()) == 2
        self.ends(executor, 2)

    def test_a_worker_of_a_gpu_starts_fresh(self, executor, tmp_path):
        executor.submit([self.job(tmp_path, 0, "--help", options=RunOptions(device="cuda"))])
        assert not self.servers()
        self.ends(executor, 1)

    def test_after_a_servers_kill_a_worker_starts_fresh_and_the_next_has_a_new_one(self, executor, tmp_path):
        executor.submit([self.job(tmp_path, 0, "--help")])
        (before,) = self.servers()
        self.ends(executor, 1)
        before.kill()
        wait_until(lambda: not self.servers())
        numbers = executor.submit([self.job(tmp_path, number, "--nonsense") for number in (1, 2)])
        (after,) = self.servers()
        assert after.pid != before.pid
        assert self.ends(executor, 2) == dict.fromkeys(numbers, 2)

    @pytest.mark.usefixtures("without_a_library")
    def test_a_server_that_cannot_load_is_tried_once_and_workers_start_fresh(self, executor, tmp_path):
        jobs = [self.job(tmp_path, number, "--nonsense") for number in range(2)]
        numbers = executor.submit(jobs[:1])
        (first,) = executor._forks.by_cpus.values()
        numbers += executor.submit(jobs[1:])
        assert list(executor._forks.by_cpus.values()) == [first]
        assert self.ends(executor, 2) == dict.fromkeys(numbers, 2)
        logs = [job.log.read_text() for job in jobs]
        assert all("the following arguments are required" in text for text in logs)
        assert ["not on this machine" in text for text in logs] == [True, False]

    def test_closing_ends_the_servers(self, executor, tmp_path):
        executor.submit([self.job(tmp_path, 0, "--help")])
        self.ends(executor, 1)
        executor.close()
        assert not self.servers()


@pytest.mark.slow
def test_a_forked_worker_trains_and_records_what_a_fresh_one_does(finished_sweep, tmp_path):
    """The sweep was trained by forked workers; one of its trials is trained again by a fresh process."""
    runs = tmp_path / "runs"
    shutil.copytree(finished_sweep / "runs", runs)
    trial = RunDirectory.of(runs, next(iter(trial_ids(runs))))
    result, (environment, *_) = trial.result(), trial.environments()
    description = trial.path / "trial.json"
    kept = description.read_bytes()
    shutil.rmtree(trial.path)
    trial.path.mkdir()
    description.write_bytes(kept)
    command = worker_command(runs, trial.trial_id, RunOptions(), "")
    subprocess.run(command, env=worker_environment(), check=True, capture_output=True)
    again, (other, *_) = trial.result(), trial.environments()
    timed = {"wall_s", "tokens_per_s", "timing", "peak_memory_bytes"}
    expected = {k: v for k, v in result.items() if k not in timed}
    assert {k: v for k, v in again.items() if k not in timed} == expected
    differ = {name for name in environment if environment[name] != other[name]}
    assert differ <= {"time", "command", "job"}
    assert environment["command"][0] == other["command"][0]
