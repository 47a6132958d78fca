"""Notices to a person, as the profile's ``notify`` says: a sweep has ended, stalls, or a trial has failed."""

import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

from scalevec.orchestrator.attempts.jobs import Task
from scalevec.orchestrator.cli.hints import command
from scalevec.orchestrator.executors.profile_fields import Notify
from scalevec.orchestrator.progress import SweepObserver, duration
from scalevec.results.masking import HIDDEN
from scalevec.results.run_directory import RunDirectory

PATIENCE_S = 5.0
"""How long a notice may take; after one that takes longer no further is sent."""
LOOK_S = 30.0
"""Between two looks whether running trials advance."""


class NoticeError(Exception):
    """A notice did not go out; the message says why, without the address."""


class Notices(SweepObserver):
    """Sends a notice at the first failure, at each stall and at the end of a sweep."""

    def __init__(self, notify: Notify, sweep: str, runs_dir: Path, say: Callable[[str], None]) -> None:
        self.notify, self.sweep, self.runs_dir, self.say = notify, sweep, runs_dir, say
        self._running: dict[str, Task] = {}
        self._failed = self._gave_up = self._stalls = False
        self._sizes: dict[str, int] = {}
        self._looked = self._advanced = time.monotonic()

    def started(self, task: Task) -> None:
        """From now on it should advance."""
        self._running[task.trial_id] = task
        self._advanced = time.monotonic()

    def ended(self, task: Task, status: str) -> None:
        """Of several failures the first is told; the end has all of them."""
        self._running.pop(task.trial_id, None)
        self._advanced = time.monotonic()
        if status == "failed" and not self._failed:
            self._failed = True
            explain = command("explain", task.trial_id[:12], self.runs_dir)
            self.send("failure", f"{task.label} failed: {explain}")

    def tick(self) -> None:
        """See whether any running trial has recorded something."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked, before = now, self._sizes
        self._sizes = {name: size for name in self._running if (size := self._recorded(name))}
        if self._sizes != before or not self._sizes:  # without any record they still wait in a queue
            self._advanced, self._stalls = now, False
        elif now - self._advanced > 60 * self.notify.stall_minutes and not self._stalls:
            self._stalls = True
            self.send("stall", f"no running trial has recorded a step for {duration(now - self._advanced)}")

    def _recorded(self, trial_id: str) -> int:
        try:
            return RunDirectory.of(self.runs_dir, trial_id).metrics_path.stat().st_size
        except OSError:
            return 0

    def finished(self, words: str) -> None:
        """Tell how the sweep ended; nothing where a person stopped it."""
        if words:
            self.send("end", words)

    def send(self, event: str, text: str) -> None:
        """Give the notice to the command and the webhook; what goes wrong is said, and costs 5 s once."""
        if self._gave_up:
            return
        try:
            if self.notify.command:
                self._run([self._filled(word, event, text) for word in self.notify.command])
            if self.notify.webhook is not None:
                _post(self.notify.webhook.get_secret_value(), event, self.sweep, text)
        except TimeoutError:
            self._gave_up = True
            self.say(f"warning: notify took longer than {PATIENCE_S:g} s; no further notice is sent")
        except (NoticeError, OSError) as problem:
            self.say(f"warning: notify: {problem}")

    def _filled(self, word: str, event: str, text: str) -> str:
        for name, value in (("event", event), ("sweep", self.sweep), ("text", text)):
            word = word.replace(f"{{{name}}}", value)
        return word

    @staticmethod
    def _run(words: list[str]) -> None:
        quiet = subprocess.DEVNULL
        child = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        try:
            code = child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise TimeoutError from None
        if code:
            raise NoticeError(f"{words[0]} ended with exit code {code}")


def _post(url: str, event: str, sweep: str, text: str) -> None:
    """Send JSON whose ``text`` chat services show; in a thread, as a server may answer a byte at a time."""
    content = {"text": f"scalevec, sweep {sweep}: {text}", "event": event, "sweep": sweep}
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    problems: list[Exception] = []

    def post() -> None:
        try:
            urllib.request.urlopen(request, timeout=PATIENCE_S).close()
        except Exception as error:  # noqa: BLE001 (told below)
            problems.append(error)

    thread = threading.Thread(target=post, daemon=True, name="notify")
    thread.start()
    thread.join(PATIENCE_S)
    if thread.is_alive() or any("timed out" in str(error) for error in problems):
        raise TimeoutError
    if problems:
        # Other errors than these repeat the address, or a part of it.
        why = problems[0] if isinstance(problems[0], URLError) else type(problems[0]).__name__
        raise NoticeError(f"webhook {HIDDEN}: {why}")
