"""What a person is told of a SLURM that does not answer: once, and once more when it does again."""

import time
from dataclasses import dataclass, field

TOLD_AFTER_S = 60.0
"""A shorter silence is no news: a controller that is started again takes as long."""


@dataclass
class Silence:
    """From the first question that had no answer to the next that has one."""

    news: list[str] = field(default_factory=list)
    """What has not been told yet."""
    _since: float | None = None
    _told: bool = False

    def heard(self, *, asked_at: float, answered: bool) -> None:
        """Take in whether a question had an answer; ``asked_at`` is by the clock ``time.monotonic``."""
        if answered:
            if self._told:
                self.news.append(
                    f"SLURM answers again, after {_minutes(asked_at - (self._since or asked_at))}"
                )
            self._since, self._told = None, False
            return
        self._since = asked_at if self._since is None else self._since
        lasts_s = time.monotonic() - self._since
        if not self._told and lasts_s >= TOLD_AFTER_S:
            self._told = True
            self.news.append(
                f"SLURM has not answered for {_minutes(lasts_s)}; its jobs are left alone meanwhile"
            )


def _minutes(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))} min"
