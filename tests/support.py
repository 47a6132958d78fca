"""Helpers that tests of several folders share."""

import fcntl
import io
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import psutil
import pytest

from scalevec.model.config import ModelConfig, OptimizerConfig, RunOptions, ScheduleConfig, Shape, Trial
from scalevec.model.strategies import PRESETS
from scalevec.orchestrator.cli.main import main
from scalevec.orchestrator.executors import forked_workers
from scalevec.orchestrator.executors.forked_workers import ForkServer
from scalevec.orchestrator.executors.local.local_executor import LocalExecutor

CHECKOUT = Path(__file__).resolve().parents[1]
SCALEVEC = Path(sysconfig.get_path("scripts")) / "scalevec"

STEPS = 24
BATCH_TOKENS = 128
SEQUENCE = 32

TWO_BILLION = Trial(
    model=ModelConfig(Shape(2560, 22, 20, 20, 6912), 32_768, PRESETS["unified"]),
    optimizer=OptimizerConfig(),
    schedule=ScheduleConfig(),
    corpus="c0" * 32,
    sequence_length=2048,
    batch_tokens=2**19,
    tokens=2**30,
    seed=0,
    precision="bfloat16",
)
"""Too large for many a card."""
ON_A_GPU = RunOptions(device="cuda", micro_batch=8)

ONE_TRIAL = """\
name: small
corpus: {{source: text, files: ["{text}/*.txt"], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 256, learning_rate: 0.02}}
ladder:
  - {{name: a, width: 32, layers: 2}}
tokens_per_parameter: [0.5]
arms:
  unified: {{scale_vectors: unified}}
compare: {{reference: unified}}
seeds: [0]
resources: {{default: {{checkpoint_s: 0.5}}}}
"""
"""A sweep of a single trial on the ``text`` files."""


def two_arms(
    name: str,
    text: Path,
    tokens_per_parameter: int,
    seeds: Sequence[int] = (0,),
    width: int = 32,
    layers: int = 2,
) -> str:
    """A sweep of one rung and two arms on the ``text`` files, with a checkpoint every half second."""
    return f"""\
name: {name}
corpus: {{source: text, files: ["{text}/*.txt"], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 256, learning_rate: 0.02}}
ladder:
  - {{name: a, width: {width}, layers: {layers}}}
tokens_per_parameter: [{tokens_per_parameter}]
arms:
  baseline: {{scale_vectors: baseline}}
  unified: {{scale_vectors: unified}}
seeds: {list(seeds)}
resources: {{default: {{checkpoint_s: 0.5}}}}
"""


def finished(folder: Path, sweep: str) -> Path:
    """``folder`` with the sweep as small.yaml and its runs, trained to the end."""
    (folder / "small.yaml").write_text(sweep)
    succeeded(call_main(["run", "small.yaml"], folder, {"SCALEVEC_CACHE_DIR": str(folder / "cache")}))
    return folder


def filled_once(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], object]) -> Path:
    """The folder ``name`` as ``fill`` left it, which all processes of one test session share."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / ".filled").open("a+") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        if not mark.seek(0, os.SEEK_END):  # another process may have filled it since the file was opened
            fill(folder)
            mark.write("filled")
    return folder


def take_our_names(folder: Path) -> Path:
    """Give ``folder`` the packages and the module of a user whose names are ours; importing one fails."""
    for package in ("analysis", "results", "sweeps", "orchestrator"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("raise ImportError('a package of the user')\n")
    (folder / "model.py").write_text("raise ImportError('a module of the user')\n")
    return folder


OF_ONE_CALL = ("SCALEVEC_CACHE_DIR", "COLUMNS", "PYTEST_CURRENT_TEST")
_servers: dict[frozenset[tuple[str, str]], ForkServer] = {}


def kept_server(
    environment: Mapping[str, str], _log: IO[bytes], _command: Sequence[str], *, bound: bool
) -> ForkServer:
    """A fork server that stays for later commands of these variables: each takes seconds to load torch.

    It runs from the checkout: each folder of runs would have a snapshot, and need a server, of its own.
    """
    variables = {name: value for name, value in environment.items() if name not in OF_ONE_CALL}
    key = frozenset(variables.items())
    if key not in _servers or _servers[key].gone:
        _servers[key] = ForkServer(variables)
    return _servers[key]


def close_servers() -> None:
    """End the fork servers that :func:`kept_server` has kept."""
    while _servers:
        _servers.popitem()[1].close()


def call_main(
    arguments: list[str], folder: Path, variables: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """``scalevec`` with ``arguments`` in ``folder``, within this process, which has loaded all libraries."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with ExitStack() as stack:
        stack.enter_context(chdir(folder))
        # What the command sets for its own process is put back too.
        stack.enter_context(patch.dict(os.environ, variables))
        stack.enter_context(patch.object(sys, "argv", ["scalevec", *arguments]))
        # Else typer takes the command's name from pytest's.
        stack.enter_context(patch.object(sys.modules["__main__"], "__package__", None))
        stack.enter_context(patch.object(forked_workers, "ForkServer", kept_server))
        stack.enter_context(patch.object(LocalExecutor, "close", lambda _: None))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        os.environ.pop("SCALEVEC_DEBUG", None)
        ended = stack.enter_context(pytest.raises(SystemExit))
        main()
    texts = (stream.buffer.getvalue().decode() for stream in (out, err))
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), *texts)


def succeeded(done: "subprocess.CompletedProcess[Any]") -> "subprocess.CompletedProcess[Any]":
    """``done``, which ended well."""
    assert done.returncode == 0, done.stderr
    return done


def assert_refused(done: "subprocess.CompletedProcess[str]", code: int, *parts: str) -> None:
    """It ended with ``code``, said each of ``parts`` and showed no traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr


def wait_until(condition: Callable[[], object], process: "subprocess.Popen[str] | None" = None) -> None:
    """``process`` is what makes it true: nothing is to be hoped for once it has ended."""
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


def workers_of(folder: Path) -> list[psutil.Process]:
    """The processes that train a trial of ``folder``/runs."""
    words = {"scalevec.orchestrator.worker.train", str((folder / "runs").resolve())}
    started = ((process, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    return [process for process, command in started if words <= set(command)]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """This process has another umask within."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """``folder`` is a device of its own within, where this system lets us mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs the right to mount a tmpfs: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def run_python(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    """``code`` in a fresh interpreter, with further ``words`` on its command line."""
    command = [sys.executable, "-P", "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


class MemoryRecorder:
    """Keeps rows as a run directory would, and asks for a stop after ``stop_after`` rows in all."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.rows: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.stop_after = stop_after
        self.details: list[dict[str, Any]] = []
        self.synced = 0

    def record(self, row: dict[str, Any]) -> None:
        self.rows.append(dict(row))

    def cut_back(self, step: int) -> None:
        self.rows = [row for row in self.rows if row["step"] <= step]

    def recorded(self) -> list[dict[str, Any]]:
        return self.rows

    def replace_rows(self, rows: list[dict[str, Any]]) -> None:
        self.rows = [dict(row) for row in rows]

    def sync(self) -> None:
        self.synced = len(self.rows)

    def say(self, message: str, **details: Any) -> None:
        self.said.append(message)
        self.details.append(details)

    def origin(self) -> dict[str, Any]:
        return {"trial_id": "ab12" * 16, "commit": "c0ffee" * 6}

    def require_ownership(self) -> None:
        """Nobody else wants the trial."""

    def stop_requested(self) -> bool:
        return self.stop_after is not None and len(self.rows) >= self.stop_after


def with_strategy(trial: Trial, name: str) -> Trial:
    return replace(trial, model=replace(trial.model, scale_vectors=PRESETS[name]))
