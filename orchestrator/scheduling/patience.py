"""How long to wait after a refusal that passes."""

import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_S, LONGEST_S = 5.0, 300.0


@dataclass
class Patience:
    """Longer after each refusal, from the start again after a success; each new reason is said once."""

    say: Callable[[str], None]
    first_s: float = FIRST_S
    longest_s: float = LONGEST_S
    _wait_s: float = 0.0
    _until: float = 0.0
    _reason: str = ""

    @property
    def left_s(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._until - time.monotonic())

    def refused(self, reason: str) -> None:
        """Wait from now on, twice as long as after the refusal before."""
        self._wait_s = min(self.longest_s, 2 * self._wait_s or self.first_s)
        self._until = time.monotonic() + self._wait_s
        if reason != self._reason:
            self.say(f"{reason}; tried again in {self._wait_s:.0f} s, then at longer intervals")
        self._reason = reason

    def succeeded(self) -> None:
        """Say that what was refused goes on."""
        if self._reason:
            self.say("accepted again; the sweep goes on")
        self._wait_s, self._until, self._reason = 0.0, 0.0, ""
