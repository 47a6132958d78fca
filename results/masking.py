"""Secrets are kept out of what is printed and kept: by the names of variables, and by their form."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST = 6
"""Characters; a shorter value would hide ordinary words."""
_SECRET = re.compile(
    r"SECRET|PASS[WP]|CREDENTIAL|WEBHOOK|CONN(ECTION)?_?STR"
    r"|(KEY|TOKEN|PASS)$|(^|_)(PAT|DSN|AUTH|COOKIE)$|(_|DB|MYSQL|PG)PWD$"
)
"""Names of variables that hold secrets; PWD and OLDPWD hold folders."""
_IN_URL = re.compile(r"(://[^\s/:@]{0,128}:)((?!\d{1,5}/)[^\s\"'<>\\]{1,128})(?=@)")
"""A password in a URL, after a user; what follows a host's port is none."""
_TOKENS = re.compile(
    r"""(?<![A-Za-z0-9])(?=[ghnrsAxypdSe])(?:
    (?:gh[opsur]_|hf_|npm_|gsk_|r8_|[rs]k_(?:live|test)_|AKIA|ASIA)[A-Za-z0-9]{16,255}
    |(?:github_pat_|gl(?:pat|dt|rt|cbt|ptt|ft|soat)-|sk-|xox[a-z]-|xapp-|AIza|ya29\.|pypi-|nvapi-|dop_v1_|SG\.)[\w.-]{16,255}
    |eyJ[\w-]{8,2048}\.[\w-]{8,4096}(?:\.[\w-]{0,2048})?
    )""",
    re.VERBOSE | re.ASCII,
)
"""Keys of well-known services by their prefixes, and JSON web tokens; that a prefix begins here is asked at
once, which makes a long log four times as fast."""
_AFTER = re.compile(
    r"""(?=[/.?&AaBbCcPpSsh])(?P<before>
    hooks\.slack\.com/|/api/webhooks/|\.webhook\.office\.com/|api\.telegram\.org/bot
    |[Aa]uthorization["']?\s?[:=]\s?["']?(?:[Bb]asic\s|[Bb]earer\s|[Tt]oken\s)?
    |[Bb]earer\s(?=[\w.~+/-]{16}|[\w.~+/-]{0,40}\d)
    |[Bb]asic\s(?=[A-Za-z+/]{0,40}[\d=])
    |(?i:passw(?:or)?d|(?:api|access|secret)[_-]?key|client[_-]?secret)=["']?
    |[?&](?:[\w-]{0,24}(?:token|key|[sS]ignature|secret)|sig|pwd)=
    )[^\s"'<>\\&;,]{6,2048}""",
    re.VERBOSE | re.ASCII,
)
"""What follows the address of a webhook, a header of authorization, a ``password=``, a ``?token=``."""


def masked(text: str, variables: Mapping[str, str] | None = None) -> str:
    """``text`` without what looks like a secret, and without the values of variables that hold one.

    Those are variables that are named like keys, tokens, secrets and passwords, and passwords in URLs of any.
    """
    named = (os.environ if variables is None else variables).items()
    values = {value for name, content in named for value in _secrets_of(name, content)}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    if "://" in text:
        text = _IN_URL.sub(rf"\1{HIDDEN}", text)
    return _AFTER.sub(rf"\g<before>{HIDDEN}", _TOKENS.sub(HIDDEN, text))


@lru_cache(maxsize=1024)
def _secrets_of(name: str, content: str) -> tuple[str, ...]:
    """What of a variable's ``content`` is secret: its lines, or the password of a URL in it."""
    if _is_secret(name):
        return tuple(line for line in content.splitlines() if len(line) >= SHORTEST)
    passwords = {match[2] for match in _IN_URL.finditer(content)}
    # One that the URL has elsewhere too, as a user or a database, would hide ordinary words.
    alone = {password for password in passwords if content.count(password) == 1}
    return tuple(word for each in alone for word in {each, unquote(each)} if len(word) >= SHORTEST)


@cache
def _is_secret(name: str) -> bool:
    return _SECRET.search(name.upper()) is not None


def masked_values(record: Any) -> Any:
    """``record`` of plain values with every text in it masked."""
    if isinstance(record, str):
        return masked(record)
    if isinstance(record, Mapping):
        return {name: masked_values(value) for name, value in record.items()}
    return [masked_values(value) for value in record] if isinstance(record, list | tuple) else record


class MaskedStream:
    """A text stream that masks what is written; a value cut in two by separate writes is not seen.

    What a full disk, or a file server that is away, does not take is lost: a log is not worth a training.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write ``text``, masked; returns its length."""
        with suppress(OSError):
            self._stream.write(masked(text))
        return len(text)

    def flush(self) -> None:
        """Pass on what was written."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        """What the stream itself has."""
        return getattr(self._stream, name)
