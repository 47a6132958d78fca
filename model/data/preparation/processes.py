"""Processes that share out work: each runs functions of our modules, one at a time."""

import os
import pickle
import queue
import selectors
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from scalevec.model.data.sources.files import CorpusError

Task = TypeVar("Task")
Answer = TypeVar("Answer")
_THREADS = "TOKENIZERS_PARALLELISM"
Call = tuple[Callable[[Any], Any], Any]


class Workers:
    """``count`` processes; with none, this one does the work.

    A process that is left alone (whoever started it is gone) ends at once.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def each(self, function: Callable[[Task], Answer], tasks: Iterable[Task]) -> Iterator[Answer]:
        """The answers of ``function``, of a module and not of a class, to ``tasks``, as they come.

        Raises what it raises: errors of a corpus and of the operating system as they are. Raises
        ``ChildProcessError`` where a process ends without an answer.
        """
        if self.count == 0:
            yield from map(function, tasks)
            return
        waiting = iter(tasks)
        with selectors.DefaultSelector() as busy:
            for number, task in zip(range(self.count), waiting, strict=False):
                self._send(busy, self._process(number), (function, task))
            while busy.get_map():
                for key, _ in busy.select():
                    process: subprocess.Popen[bytes] = key.data
                    answer = _received(process)
                    busy.unregister(key.fileobj)
                    for task in waiting:
                        self._send(busy, process, (function, task))
                        break
                    yield answer

    def _process(self, number: int) -> "subprocess.Popen[bytes]":
        while number >= len(self._processes):
            self._processes.append(_started(self.count))
        return self._processes[number]

    def _send(
        self, busy: selectors.BaseSelector, process: "subprocess.Popen[bytes]", call: "tuple[object, object]"
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(call, process.stdin)
            process.stdin.flush()
        except BrokenPipeError:
            raise _lost(process) from None
        busy.register(process.stdout, selectors.EVENT_READ, process)


def _started(count: int) -> "subprocess.Popen[bytes]":
    # The library of tokenizers has threads of its own, which would multiply with the processes.
    threads = {_THREADS: "false", "RAYON_NUM_THREADS": str(count), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"]
    # Ctrl-C reaches every process at the terminal; here only the first one answers it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | threads
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def threads_of_the_library() -> Iterator[None]:
    """Let the tokenizers library use its threads: for work that is not shared out among the processes."""
    before = os.environ.pop(_THREADS, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[_THREADS] = before


def _received(process: "subprocess.Popen[bytes]") -> Any:
    assert process.stdout is not None
    try:
        answer, error = pickle.load(process.stdout)  # noqa: S301 (from our own process)
    except (EOFError, pickle.UnpicklingError):
        raise _lost(process) from None
    if error is not None:
        raise error
    return answer


def _lost(process: "subprocess.Popen[bytes]") -> ChildProcessError:
    code = process.wait()
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return ChildProcessError(
        f"a process that prepared the corpus {ended}, perhaps for want of memory; what is finished is kept: "
        "give the same command again, with fewer --jobs if it was memory"
    )


def serve() -> None:
    """Answer calls from standard input on standard output until it is closed."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(calls,), daemon=True).start()
    while True:
        answers.write(_answered(*calls.get()))
        answers.flush()


def _listen(calls: "queue.SimpleQueue[Call]") -> None:
    """Pass on what is read; end the process, whatever it is doing, once nobody can hear its answer."""
    while True:
        try:
            calls.put(pickle.load(sys.stdin.buffer))  # noqa: S301 (from our own process)
        except EOFError:
            os._exit(0)


def _answered(function: Callable[[Any], Any], task: object) -> bytes:
    try:
        return pickle.dumps((function(task), None))
    except CorpusError as error:
        return pickle.dumps((None, CorpusError(str(error))))  # its kinds take other arguments
    except (OSError, MemoryError) as error:
        return pickle.dumps((None, error))
    except Exception as error:  # noqa: BLE001 (whatever it is, the first process shall say it)
        traceback.print_exc()
        return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
