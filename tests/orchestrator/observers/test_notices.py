"""The profile's ``notify``: who is told what, and that nobody waits for it."""

import json
from types import SimpleNamespace

import pytest

from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.executors.profile_fields import Notify
from scalevec.orchestrator.observers import notices as module
from scalevec.orchestrator.observers.notices import Notices
from scalevec.results.run_directory import RunDirectory

TASK = SimpleNamespace(trial_id="ab" * 32, label="baseline a seed 0")


@pytest.fixture
def notices(tmp_path):
    """Notices of a sweep as ``notify`` says, and the warnings."""

    def make(**notify) -> tuple[Notices, list[str]]:
        warnings: list[str] = []
        return Notices(Notify(**notify), "small", tmp_path, warnings.append), warnings

    return make


def writing(path) -> dict:
    return {"command": ["sh", "-c", f'echo "$1 of $2: $3" >> {path}', "sh", "{event}", "{sweep}", "{text}"]}


def test_the_first_failure_and_the_end_are_told(notices, tmp_path):
    notify, warnings = notices(**writing(tmp_path / "told"))
    for _ in range(2):
        notify.started(TASK)
        notify.ended(TASK, "failed")
    notify.finished("2 trials failed; $(reboot)")
    assert (tmp_path / "told").read_text().splitlines() == [
        f"failure of small: baseline a seed 0 failed: scalevec explain abababababab --runs {tmp_path}",
        "end of small: 2 trials failed; $(reboot)",
    ]
    assert warnings == []


def test_a_stall_is_told_once_until_something_advances(notices, tmp_path, monkeypatch):
    notify, _ = notices(**writing(tmp_path / "told"), stall_minutes=10)
    metrics = RunDirectory.of(tmp_path, TASK.trial_id).metrics_path
    metrics.parent.mkdir(parents=True)
    now = module.time.monotonic()

    def pass_minutes(minutes: int) -> int:
        nonlocal now
        for _ in range(minutes):
            now += 60
            notify.tick()
        return len((tmp_path / "told").read_text().splitlines()) if (tmp_path / "told").exists() else 0

    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    notify.started(TASK)
    assert pass_minutes(30) == 0  # in a queue: it has not begun
    metrics.write_text("{}\n")
    assert [pass_minutes(9), pass_minutes(20)] == [0, 1]
    metrics.write_text("{}\n{}\n")
    assert [pass_minutes(9), pass_minutes(20)] == [1, 2]


def test_one_that_hangs_is_waited_for_once(notices, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    notify, warnings = notices(command=["sleep", "60"])
    notify.send("failure", "one")
    notify.send("end", "two")
    assert len(warnings) == 1
    assert "no further notice is sent" in warnings[0]


def test_a_command_that_is_not_there_is_told(notices):
    notify, warnings = notices(command=["no-such-command"])
    notify.finished("over")
    assert "no-such-command" in warnings[0]


@pytest.mark.slow
def test_the_end_of_a_run_is_told_by_its_profile(scalevec, tmp_path, sweep_file):
    text = sweep_file.read_text().replace("  - {name: b, width: 32, layers: 1}\n", "")
    sweep_file.write_text(text.replace("tune:", "# tune:").replace("seeds: [0, 1]", "seeds: [0]"))
    words = json.dumps(writing(tmp_path / "told")["command"])
    (tmp_path / "profiles.yaml").write_text(f"me: {{notify: {{command: {words}}}}}\n")
    done = scalevec("run", "small.yaml", "--profile", "me", "--trust")
    assert done.returncode == Exit.DONE, done.stderr
    assert (tmp_path / "told").read_text() == "end of small: every trial has a result\n"
