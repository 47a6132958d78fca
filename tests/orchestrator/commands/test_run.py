"""The order in which ``run`` and ``submit`` do things."""

import os
import signal
from types import SimpleNamespace

import pytest

from scalevec.orchestrator.attempts.jobs import stop_signals_to
from scalevec.orchestrator.commands.run.run import run
from scalevec.orchestrator.commands.run.submit import submit
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.ray import ray_executor


class Silent(SimpleNamespace):
    """A cluster that does not answer."""

    @property
    def free_slots(self) -> int:
        raise MissingRequirementError("no cluster answers")

    def close(self) -> None:
        """Nothing is held."""


def test_an_executor_that_is_absent_is_told_before_the_corpus_is_prepared(sweep_file, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingRequirementError, match=r"no sbatch on the PATH.*login node"):
        run(str(sweep_file), tmp_path / "runs", "slurm")
    assert not (tmp_path / "runs").exists()


def test_a_cluster_that_is_silent_is_told_before_the_corpus_is_prepared(sweep_file, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_executor, "RayExecutor", lambda site: Silent(site=site))
    with pytest.raises(MissingRequirementError, match="no cluster answers"):
        run(str(sweep_file), tmp_path / "runs", "ray")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("send", [run, submit])
def test_a_slurm_that_is_down_is_told_before_the_corpus_is_prepared(send, sweep_file, tmp_path, monkeypatch):
    for name, script in {"sbatch": "exit 0", "scontrol": "echo no contact >&2; exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingRequirementError, match="SLURM does not answer: no contact"):
        send(str(sweep_file), tmp_path / "runs", "slurm")
    assert not (tmp_path / "runs").exists()


def test_the_handler_of_ctrl_c_prints_nothing(capsys):
    """Where it interrupts a line that is being written, Python refuses a second one."""
    requests = []
    with stop_signals_to(lambda: requests.append(1)):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert len(requests) == 2
    assert capsys.readouterr() == ("", "")
