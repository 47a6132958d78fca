"""Progress of long work on standard error: a live bar at a terminal, one line per trial elsewhere."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from scalevec.analysis.errors import printable as printable
from scalevec.results.masking import masked

if TYPE_CHECKING:
    from rich.text import Text

    from scalevec.orchestrator.attempts.jobs import Task
    from scalevec.orchestrator.observers.trial_logs import TrialLogs

LOG_LINES = 5
"""Of a terminal that stay the log's while a run shows its state below."""
LOOK_S, SHARE = 1.0, 5
"""Seconds between two readings of that state, and how many times as long as one took: the run comes first."""
MOST_LISTED = 8
_KEPT: ContextVar[list[str] | None] = ContextVar("notes that are kept", default=None)


def note(text: str) -> None:
    """Tell the person at the terminal; standard output is for results."""
    if (kept := _KEPT.get()) is not None:
        kept.append(text)
        return
    print(printable(masked(text)), file=sys.stderr, flush=True)


@contextmanager
def notes_kept() -> Iterator[list[str]]:
    """Yield a list that gets the notes of this thread in the body, which nobody else is told of."""
    kept: list[str] = []
    token = _KEPT.set(kept)
    try:
        yield kept
    finally:
        _KEPT.reset(token)


class Progress:
    """Counts trials, and says what becomes of each; how long the rest takes is for ``status`` to say."""

    def __init__(self) -> None:
        self.observers: Sequence[TrialLogs] = ()
        """What else follows the trials; none raises, or keeps the run waiting."""
        self.stage = ""
        self.total = self.done = 0
        self._started: dict[str, float] = {}

    def begin(self, tasks: "Sequence[Task]", executor: str) -> None:
        """The trials that this stage has to run."""
        self.total, self.done = len(tasks), 0
        if tasks:
            self.message(f"{self.stage}: {counted(len(tasks), 'trial')} to run ({executor})")

    def started(self, task: "Task") -> None:
        """An attempt begins."""
        self._started[task.trial_id] = time.monotonic()
        for observer in self.observers:
            observer.started(task)

    def interrupted(self, task: "Task") -> None:
        """An attempt ended without a result."""
        self._started.pop(task.trial_id, None)

    def ended(self, task: "Task", status: str, result: Mapping[str, Any] | None = None) -> None:
        """A trial is finished, with its ``result``, or given up."""
        self.done += 1
        began = self._started.pop(task.trial_id, None)
        took = "" if began is None else f" in {duration(time.monotonic() - began)}"
        loss = (result or {}).get("loss_validation")
        shown = "" if loss is None else f", validation loss {loss:.4f}"
        self.message(f"[{self.done}/{self.total}] {task.label}: {status}{took}{shown}")
        for observer in self.observers:
            observer.ended(task, status)

    def tick(self) -> None:
        """Called several times a second."""
        for observer in self.observers:
            observer.tick()

    def close(self) -> None:
        """Nothing more will come."""
        for observer in self.observers:
            observer.finished()

    def message(self, text: str) -> None:
        """Say ``text`` to the person who waits."""
        note(text)

    def stopping(self, *, keeps_jobs: bool, hard: bool) -> None:
        """Say what becomes of the running trials, now that somebody asked to stop."""
        if keeps_jobs:
            self.message("detaching: queued jobs keep running")
        elif hard:
            self.message("ending the running trials")
        else:
            self.message(
                "stopping: running trials end, with a checkpoint if they can (Ctrl-C again: at once)"
            )


class LiveProgress(Progress):
    """The same with the state of the sweep below the log, for a terminal; a thread of its own reads it.

    Args:
        state: Returns the state for a terminal of so many columns and lines.
    """

    def __init__(self, state: "Callable[[int, int], Text]") -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__()
        self._state = state
        self._live = Live(console=Console(stderr=True), auto_refresh=False)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def begin(self, tasks: "Sequence[Task]", executor: str) -> None:
        """Show the state from the first trial on."""
        super().begin(tasks, executor)
        if tasks and not self._live.is_started:
            self._live.start()
            self._thread.start()

    def message(self, text: str) -> None:
        """Above the state."""
        self._live.console.print(printable(masked(text)), highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the last state below the log."""
        super().close()
        if self._live.is_started:
            self._closed.set()
            self._thread.join()
            self._live.stop()

    def _follow(self) -> None:
        """Draw the state where it has changed: the line may be slow. The last time is after the end."""
        shown, took_s, is_last = "", 0.0, False
        while not is_last:
            is_last = self._closed.wait(max(LOOK_S, SHARE * took_s))
            began = time.monotonic()
            # Whatever reading meets, the run itself meets it too, and says so.
            with suppress(Exception):
                columns, lines = self._live.console.size
                text = self._state(columns, max(LOG_LINES, lines - LOG_LINES))
                if text.plain != shown:
                    self._live.update(text, refresh=True)
                shown = text.plain
            took_s = time.monotonic() - began


def duration(seconds: float) -> str:
    """``seconds`` for a person: 45 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    whole = round(seconds)
    for size, unit, below, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // below} {small}"
    return f"{whole} s"


def counted(count: int, noun: str) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Iterable[str], most: int = MOST_LISTED) -> str:
    """Return the first ``most`` of the different ``names``, and how many more there are."""
    names = list(dict.fromkeys(names))
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def states_text(states: Mapping[str, int]) -> str:
    """``3 completed, 9 pending``."""
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"


def progress_for(state: "Callable[[int, int], Text]") -> Progress:
    """The kind that fits standard error; at a terminal, with the ``state`` of the sweep below the log."""
    moves = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return LiveProgress(state) if moves else Progress()
