# ruff: noqa: F811 (fixtures of another module)
"""What nodes of a real cluster lack: one message, nothing trained, and nothing left in the queue."""

import pytest

from cluster.slurm_daemons import until
from cluster.test_slurm_training import PATIENCE_S, assert_whole, end_of, start, sweep, undisturbed  # noqa: F401
from scalevec.results.run_directory import RunDirectory, trial_ids

PLAIN = "poll_s: 0.2, memory_gb: 1.5, time: 60"


@pytest.fixture(autouse=True)
def profiles(tmp_path, monkeypatch):
    """The profile is the person's own."""
    monkeypatch.setenv("SCALEVEC_PROFILES", str(tmp_path / "profiles.yaml"))


@pytest.fixture
def refused(start, slurm, tmp_path):
    """What a run says that has a profile with ``more``; no trial has been begun by then, and none waits."""

    def run(more: str) -> str:
        (tmp_path / "profiles.yaml").write_text(f"plain: {{{PLAIN}, {more}}}\n")
        process = start("plain")
        _, messages = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 3, messages
        assert "lacks what trials of" in messages
        assert "nothing more is sent" in messages
        until(lambda: not slurm.run("squeue", "-h").strip(), "the queue is empty", slurm.logs)
        trials = [RunDirectory.of(tmp_path / "runs", name) for name in trial_ids(tmp_path / "runs")]
        assert len(trials) == 2
        expected = {("pending", "not_started")}
        assert {(trial.state().state, trial.state().cause) for trial in trials} == expected
        assert not [path for trial in trials for path in trial.path.glob("claims/*")]
        return messages

    return run


def test_nodes_without_the_gpu_that_trials_ask_for_are_told(refused):
    assert "- CUDA: torch " in (messages := refused("gpus: 1"))
    assert "sees no GPU there" in messages


def test_a_line_of_setup_that_fails_is_told_and_once_it_is_mended_both_trials_are_trained(
    refused, start, tmp_path, undisturbed
):
    assert "no_such_module: command not found" in refused("setup: [no_such_module]")
    (tmp_path / "profiles.yaml").write_text(f"plain: {{{PLAIN}}}\n")
    end_of(start("plain"))
    assert_whole(tmp_path, undisturbed)


def test_a_launcher_that_cannot_start_anything_is_told_with_what_it_says(refused, tmp_path):
    launcher = tmp_path / "launcher"
    launcher.write_text("#!/bin/sh\necho 'FATAL: no such image' >&2\nexit 255\n")
    launcher.chmod(0o755)
    assert "FATAL: no such image" in refused(f"launcher: [{launcher}]")


def test_an_interpreter_without_torch_is_told(refused, tmp_path):
    (tmp_path / "site" / "torch").mkdir(parents=True)
    (tmp_path / "site" / "torch" / "__init__.py").write_text("raise ImportError('no torch in this image')\n")
    launcher = f"launcher: [env, PYTHONPATH={tmp_path / 'site'}]"
    assert "ImportError: no torch in this image" in refused(launcher)
