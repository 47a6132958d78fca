"""What a task of Ray does before it runs a command."""

import pytest

pytest.importorskip("ray")

from scalevec.orchestrator.executors.ray.task import run_command


def test_a_task_that_ray_runs_as_another_user_than_the_driver_runs_nothing(tmp_path):
    log, where, command = tmp_path / "log.txt", tmp_path / "where", ("touch", str(tmp_path / "ran"))
    with pytest.raises(PermissionError, match=r"the Ray cluster runs tasks as \w+, and you are user 4242"):
        run_command(command, log, where, 1, user=4242)
    assert list(tmp_path.iterdir()) == []
