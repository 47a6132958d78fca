"""What is recorded of the process that ran a trial, and what is not."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scalevec.orchestrator.snapshots.start import PARTS
from scalevec.orchestrator.worker import provenance
from scalevec.orchestrator.worker.provenance import commit_of, environment, machine
from scalevec.orchestrator.worker.trainers.command_trainer import CommandTrainer
from scalevec.sweeps.trainers.any_trial import Protocol
from support import CHECKOUT, run_python, succeeded

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b")
STORE = "postgresql://someone:top-secret@host/name"


def git(folder: Path, *words: str) -> str:
    """What git prints in ``folder``."""
    command = ["git", *AUTHOR, "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        (["--store", STORE, "run", "my.yaml"], ["--store", "***", "run", "my.yaml"]),
        ([f"--store={STORE}", "run", "my.yaml"], ["--store=***", "run", "my.yaml"]),
        (["store", "rebuild", "--runs", "r"], ["store", "rebuild", "--runs", "r"]),
        (["--debug", "--store"], ["--debug", "--store"]),
    ],
)
def test_the_command_is_recorded_without_the_store(monkeypatch, given, recorded):
    monkeypatch.setattr(sys, "argv", ["scalevec", *given])
    assert environment()["command"] == ["scalevec", *recorded]


@pytest.fixture(scope="module")
def site_packages(tmp_path_factory) -> Path:
    """The site-packages of a venv inside a user's repository, with scalevec as a wheel leaves it there."""
    repository = tmp_path_factory.mktemp("repository")
    git(repository, "init")
    git(repository, "commit", "--allow-empty", "-m", "theirs")
    site = repository / ".venv" / "lib" / "site-packages"
    for name in PARTS:
        ignored = shutil.ignore_patterns("__pycache__", "*.yaml")
        shutil.copytree(CHECKOUT / name, site / "scalevec" / name, ignore=ignored)
    shutil.copy(CHECKOUT / "src" / "scalevec" / "__init__.py", site / "scalevec")
    return site


def in_the_venv(site_packages: Path, expression: str) -> object:
    """The value of ``expression`` with provenance imported from ``site_packages``."""
    code = (
        f"import sys; sys.path.insert(0, {str(site_packages)!r}); import json\n"
        "from scalevec.orchestrator.worker.provenance import *\n"
        f"print(json.dumps({expression}))"
    )
    return json.loads(succeeded(run_python(code)).stdout)


def test_a_wheel_in_a_users_repository_records_its_version_and_no_commit(site_packages):
    recorded = in_the_venv(site_packages, "dict(environment())")
    assert (recorded["source"], recorded["commit"], recorded["dirty"]) == ("wheel", None, None)
    assert recorded["local_changes"] is None
    assert recorded["versions"]["scalevec"] == importlib.metadata.version("scalevec")


def test_a_checkout_records_its_own_commit():
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True)
    assert environment()["source"] == "checkout"
    assert environment()["commit"] == (head.stdout.strip() or None)


def committed(folder: Path) -> None:
    """Makes a repository of ``folder``, all of it committed."""
    for words in (["init"], ["add", "."], ["commit", "-m", "first"]):
        git(folder, *words)


def test_two_states_of_a_checkout_with_local_changes_are_told_apart(monkeypatch, tmp_path):
    (tmp_path / "code.py").write_text("1")
    committed(tmp_path)
    monkeypatch.setattr(provenance, "HOME", tmp_path)
    recorded = []
    for content in ("1", "2", "3"):
        (tmp_path / "code.py").write_text(content)
        recorded.append(provenance.code_state.__wrapped__())
    assert [state["dirty"] for state in recorded] == [False, True, True]
    assert recorded[0]["local_changes"] == "none"
    assert len({state["local_changes"] for state in recorded}) == 3
    assert len({state["commit"] for state in recorded}) == 1


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A repository whose configuration runs a command on whatever git does there; the file that shows it."""
    repository, shown = tmp_path / "theirs", tmp_path / "ran"
    repository.mkdir()
    for name, value in {"HOME": tmp_path, "GIT_CONFIG_NOSYSTEM": 1}.items():
        monkeypatch.setenv(name, str(value))
    (repository / "train.py").write_text("1")
    (repository / ".gitattributes").write_text("*.py filter=spy diff=spy\n")
    committed(repository)
    keys = ("core.fsmonitor", "filter.spy.clean", "diff.spy.textconv", "diff.external", "core.pager")
    for key in keys:
        git(repository, "config", key, f"touch {shown}; cat")
    (repository / "train.py").write_text("2")
    git(repository, "status")
    assert shown.exists()
    shown.unlink()
    return repository, shown


def test_nothing_that_the_configuration_of_a_sweeps_repository_names_is_run(canary):
    repository, shown = canary
    attempt = CommandTrainer(repository, None, None, Protocol(folder=str(repository)))
    assert len(attempt.origin()["trainer"]["commit"]) == 40
    assert not shown.exists()


@pytest.mark.parametrize("state", ["branch", "packed", "detached", "worktree", "sha256"])
def test_the_commit_is_read_as_git_would_say_it(tmp_path, state):
    top = tmp_path / "top"
    top.mkdir()
    form = ["--object-format=sha256"] if state == "sha256" else []
    commands = [["init", *form], ["commit", "--allow-empty", "-m", "a"]]
    commands += {
        "packed": [["pack-refs", "--all"]],
        "detached": [["checkout", "--detach"]],
        "worktree": [["worktree", "add", str(tmp_path / "other")]],
    }.get(state, [])
    for command in commands:
        git(top, *command)
    (top / "lab").mkdir()
    folder = tmp_path / "other" if state == "worktree" else top / "lab"
    assert commit_of(folder) == git(top, "rev-parse", "HEAD")


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none", "ref: ../../secret", "not a commit"])
def test_what_is_no_commit_is_none(tmp_path, head):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    (tmp_path / "secret").write_text("hush")
    assert commit_of(tmp_path) is None


def test_a_machine_without_a_gpu_records_processor_capability_and_threads():
    recorded = machine("cpu")
    assert recorded["cpu_model"]
    assert recorded["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert recorded["threads"] == torch.get_num_threads()
    assert recorded["gpu"] is recorded["cuda"] is recorded["cudnn"] is None


def test_a_gpu_is_recorded_with_its_libraries_where_it_trains(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H200")
    monkeypatch.setattr(torch.version, "cuda", "12.9")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    recorded = machine("cuda")
    assert (recorded["gpu"], recorded["cuda"], recorded["cudnn"]) == ("H200", "12.9", 91002)
    assert machine("cpu")["gpu"] is None
