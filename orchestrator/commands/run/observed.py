"""What follows a run of a sweep: the logs that were asked for, and the profile's notices."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scalevec.orchestrator.errors import TryLaterError, explain
from scalevec.orchestrator.progress import Progress, SweepObserver, counted

if TYPE_CHECKING:
    from scalevec.orchestrator.executors.base import Site
    from scalevec.orchestrator.scheduling.outcome import Outcome


@contextmanager
def observed(progress: Progress, site: "Site", logs: Sequence[str], *, by_hand: bool) -> Iterator[None]:
    """Let the ``logs`` by their names, and the profile's notices, follow what runs within.

    Raises ``InvalidInputError`` for a log of another name, ``MissingRequirementError`` without its library.
    """
    from scalevec.orchestrator.sweep.sweep_run import StageIncompleteError

    progress.observers = _observers(progress, site, logs)
    words = ""
    try:
        yield
        words = "every trial has a result"
    except StageIncompleteError as incomplete:
        words = _how(incomplete.outcome)
        raise
    except Exception as error:
        # A controller tries again by itself.
        words = "" if isinstance(error, TryLaterError) and not by_hand else explain(error)[0]
        raise
    finally:
        for observer in progress.observers:
            observer.finished(words)


def _observers(progress: Progress, site: "Site", logs: Sequence[str]) -> list[SweepObserver]:
    """The logs of the command and of the profile, each once, and the notices."""
    observers: list[SweepObserver] = []
    if names := dict.fromkeys([*logs, *site.profile.log]):
        from scalevec.orchestrator.observers.trial_logs import TrialLogs

        observers += [TrialLogs(name, site.sweep, site.runs_dir, progress.message) for name in names]
    if (notify := site.profile.notify).command or notify.webhook:
        from scalevec.orchestrator.observers.notices import Notices

        observers.append(Notices(notify, site.sweep, site.runs_dir, progress.message))
    return observers


def _how(outcome: "Outcome") -> str:
    """How an incomplete stage ended; nothing where the person at the terminal stopped it."""
    if outcome.stopped or outcome.left_running:
        return ""
    counts = {
        "failed": len(outcome.failed),
        "cancelled": len(outcome.cancelled),
        "skipped": outcome.left_out,
    }
    return ", ".join(f"{counted(count, 'trial')} {how}" for how, count in counts.items() if count)
