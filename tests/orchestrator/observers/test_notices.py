"""The profile's ``notify``: who is told what, and that neither waits nor shows its secret."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from scalevec.orchestrator.errors import Exit, InvalidInputError
from scalevec.orchestrator.executors.profile_fields import Notify
from scalevec.orchestrator.executors.profiles import load_profile
from scalevec.orchestrator.observers import notices as module
from scalevec.orchestrator.observers.notices import Notices
from scalevec.orchestrator.trust import Trust
from scalevec.results.run_directory import RunDirectory

TASK = SimpleNamespace(trial_id="ab" * 32, label="baseline a seed 0")


@pytest.fixture
def notices(tmp_path):
    """Notices of a sweep as ``notify`` says, and the warnings."""

    def make(**notify) -> tuple[Notices, list[str]]:
        warnings: list[str] = []
        return Notices(Notify(**notify), "small", tmp_path, warnings.append), warnings

    return make


@contextmanager
def served(answer: int = 200, wait=lambda: None):
    """A server on this machine: its address, and what it was sent."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            wait()
            self.send_response(answer)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/TOPSECRET", received
    finally:
        server.shutdown()
        server.server_close()


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


def test_a_webhook_gets_json_with_a_text(notices):
    with served() as (url, received):
        notify, warnings = notices(webhook=url)
        notify.finished("every trial has a result")
    text = "scalevec, sweep small: every trial has a result"
    assert (received, warnings) == ([{"text": text, "event": "end", "sweep": "small"}], [])


def test_a_webhook_that_refuses_is_told_without_its_address(notices):
    with served(answer=403) as (url, _):
        notify, warnings = notices(webhook=url)
        notify.finished("over")
    assert "403" in warnings[0]
    assert "TOPSECRET" not in warnings[0]


@pytest.mark.parametrize("kind", ["command", "webhook"])
def test_one_that_hangs_is_waited_for_once(notices, monkeypatch, kind):
    monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    release = threading.Event()
    with served(wait=release.wait) as (url, received):
        notify, warnings = notices(
            **({"webhook": url} if kind == "webhook" else {"command": ["sleep", "60"]})
        )
        notify.send("failure", "one")
        notify.send("end", "two")
        release.set()
    assert len(warnings) == 1
    assert "no further notice is sent" in warnings[0]
    assert len(received) == (kind == "webhook")


def test_a_command_that_is_not_there_is_told(notices):
    notify, warnings = notices(command=["no-such-command"])
    notify.finished("over")
    assert "no-such-command" in warnings[0]


def test_the_webhook_is_shown_nowhere(tmp_path):
    (tmp_path / "profiles.yaml").write_text(
        "good: {notify: {webhook: 'https://x/TOPSECRET'}}\nbad: {notify: {webhook: ['https://x/TOPSECRET']}}\n"
    )
    profile = load_profile("good", tmp_path, "local", trust=Trust(given=True))
    assert profile.notify.webhook.get_secret_value().endswith("TOPSECRET")
    assert "TOPSECRET" not in f"{profile!r} {profile.model_dump_json()}"
    with pytest.raises(InvalidInputError) as refusal:
        load_profile("bad", tmp_path, "local")
    assert "notify.webhook: cannot be used (it is not shown)" in str(refusal.value)
    assert "TOPSECRET" not in str(refusal.value)


@pytest.mark.slow
def test_the_end_of_a_run_is_told_by_its_profile(scalevec, tmp_path, sweep_file):
    text = sweep_file.read_text().replace("  - {name: b, width: 32, layers: 1}\n", "")
    sweep_file.write_text(text.replace("tune:", "# tune:").replace("seeds: [0, 1]", "seeds: [0]"))
    words = json.dumps(writing(tmp_path / "told")["command"])
    (tmp_path / "profiles.yaml").write_text(f"me: {{notify: {{command: {words}}}}}\n")
    done = scalevec("run", "small.yaml", "--profile", "me", "--trust")
    assert done.returncode == Exit.DONE, done.stderr
    assert (tmp_path / "told").read_text() == "end of small: every trial has a result\n"
