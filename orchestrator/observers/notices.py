"""Notices to a person, as the profile's ``notify`` says: a sweep has ended, stalls, or a trial has failed."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from scalevec.orchestrator.attempts.jobs import Task
from scalevec.orchestrator.cli.output import command
from scalevec.orchestrator.executors.profile_fields import Notify
from scalevec.orchestrator.progress import SweepObserver, duration
from scalevec.results.run_directory import RunDirectory

PATIENCE_S = 5.0
"""How long a notice may take; after one that takes longer no further is sent."""
LOOK_S = 30.0
"""Between two looks whether running trials advance."""


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
        """Give the notice to the command; what goes wrong is said, and costs 5 s once."""
        if self._gave_up:
            return
        try:
            problem = self._run([self._filled(word, event, text) for word in self.notify.command])
        except OSError as error:
            problem = str(error)
        if problem:
            self.say(f"warning: notify: {problem}")

    def _filled(self, word: str, event: str, text: str) -> str:
        for name, value in (("event", event), ("sweep", self.sweep), ("text", text)):
            word = word.replace(f"{{{name}}}", value)
        return word

    def _run(self, words: list[str]) -> str:
        """What is wrong with the command, if anything; one that hangs is ended, and not given again."""
        quiet = subprocess.DEVNULL
        child = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        try:
            code = child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            self._gave_up = True
            return f"{words[0]} took longer than {PATIENCE_S:g} s; no further notice is sent"
        return f"{words[0]} ended with exit code {code}" if code else ""
