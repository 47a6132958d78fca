"""How an attempt at a trial ends without a result, beyond what an exception of Python says of itself."""

import hashlib


class AttemptFailedError(Exception):
    """What ended the attempt, in words for a person.

    ``cause`` is one of ``attempts.retry_policy.FAULTS``; ``digest`` tells whether it is the same error again.
    """

    def __init__(self, message: str, cause: str = "error", digest: str | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.digest = digest or hashlib.sha256(message.encode()).hexdigest()


class DefiniteError(AttemptFailedError):
    """A mistake that a person has to correct: another attempt would meet it again."""
