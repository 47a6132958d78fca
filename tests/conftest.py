"""What several tests share: a small real corpus, trials of some seconds, and a way to call scalevec."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from scalevec.analysis.registry import LAWS
from scalevec.model.optimization import OPTIMIZERS, SCHEDULES
from scalevec.model.strategies import REPARAMETERIZATIONS
from scalevec.orchestrator.executors.local import local_executor
from scalevec.sweeps.fields import FIELD_HELP, FIELD_TYPES, TRIAL_FIELDS
from scalevec.sweeps.plugins import registered
from support import SCALEVEC, call_main, close_servers, mounted

os.environ.setdefault("OMP_NUM_THREADS", "1")
# One for all tests of this process: what is sent is the same code.
PRIVATE = tempfile.TemporaryDirectory(prefix="scalevec-private-")
os.environ["SCALEVEC_PRIVATE_DIR"] = PRIVATE.name
# Models of one size are measured once, not once for each cache folder or process of one test session.
if "PYTEST_XDIST_WORKER" not in os.environ:
    ESTIMATES = tempfile.TemporaryDirectory(prefix="scalevec-estimates-")
    os.environ["SCALEVEC_ESTIMATES_DIR"] = ESTIMATES.name
# A machine that judges a change tries the same examples each time: a person tries more, and new ones.
# No example has a deadline, nor has its making: how long it takes is the machine's load.
PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("new", **PATIENT)
settings.register_profile("same", derandomize=True, max_examples=40, **PATIENT)
settings.load_profile("same" if os.environ.get("CI") else "new")

MODULES = ("argparse", "ast", "calendar", "cmd", "configparser", "csv", "difflib", "doctest")


def pytest_configure() -> None:
    """A shell that starts tests in the background has them ignore Ctrl-C, and with them all they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    close_servers()


@pytest.fixture(scope="session")
def text_files(tmp_path_factory) -> Path:
    """A folder of real text: some modules of the standard library."""
    folder = tmp_path_factory.mktemp("text")
    source = Path(argparse.__file__).parent
    for name in MODULES:
        (folder / f"{name}.txt").write_bytes((source / f"{name}.py").read_bytes())
    return folder


@pytest.fixture
def own_registries():
    """What plugins register within the test is forgotten after it, and so are their modules."""
    tables = (
        OPTIMIZERS,
        SCHEDULES,
        REPARAMETERIZATIONS,
        LAWS,
        TRIAL_FIELDS,
        FIELD_TYPES,
        FIELD_HELP,
        registered._owners,
    )
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)
    for name in [name for name in sys.modules if name.partition(".")[0] == "mylab"]:
        del sys.modules[name]


@pytest.fixture
def gpus_of_torch(monkeypatch):
    """Sets what the process that asks torch prints; it asks without loading torch."""

    def count(number: int, *, rocm: bool = False) -> None:
        monkeypatch.setattr(local_executor, "_COUNT", f"print('[{number}, {str(rocm).lower()}]')")
        local_executor._asked.cache_clear()

    yield count
    local_executor._asked.cache_clear()


@pytest.fixture
def scalevec(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Calls the command within this process, as if in an empty folder with a cache of its own."""
    variables = {"SCALEVEC_CACHE_DIR": str(tmp_path / "cache"), "COLUMNS": "200"}
    return lambda *arguments: call_main(list(map(str, arguments)), tmp_path, variables)


@pytest.fixture
def scalevec_process(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Calls the installed command as a process, where that is what a test is about."""
    environment = os.environ | {"SCALEVEC_CACHE_DIR": str(tmp_path / "cache"), "COLUMNS": "200"}
    environment.pop("SCALEVEC_DEBUG", None)

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [str(SCALEVEC), *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    return call


@pytest.fixture
def start_scalevec(tmp_path) -> Callable[..., "subprocess.Popen[str]"]:
    """Starts the command and returns at once; ``change`` makes its variables of those of the test."""
    environment = os.environ | {"SCALEVEC_CACHE_DIR": str(tmp_path / "cache")}

    def start(*arguments: object, change: Callable[..., dict[str, str]] = dict) -> "subprocess.Popen[str]":
        command = [str(SCALEVEC), *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=tmp_path, env=change(environment), text=True, **pipes)

    return start


@pytest.fixture
def small_device(tmp_path):
    """A folder on a device of its own with 64 KiB, where this system lets us mount one."""
    with mounted(tmp_path / "device", "-o", "size=64k") as folder:
        yield folder
