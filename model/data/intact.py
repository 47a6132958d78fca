"""Whether the shards of a corpus still are what was written: their digests, read once a state of the file."""

import hashlib
import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from scalevec.model.data.durable_files import read_regular
from scalevec.model.data.prepared import Corpus, PlacedFile, remedy
from scalevec.model.data.sources.files import CorpusError

CHECKED = "checked.json"
"""Beside the shards: size and time of change of each when its digest was right."""
LONG_BYTES = 10**9
"""From here on reading takes so long that it is said."""

Stamps = dict[str, list[int]]


def require_intact(
    corpus: Corpus, say: Callable[[str], None] = lambda _: None, *, again: bool = False
) -> None:
    """Raise :class:`CorpusError` unless each shard has the digest that was written.

    A shard that has not changed, by its size and time, since its digest was right is not read; with ``again``
    all are.
    """
    known = {} if again else _known(corpus.directory)
    files = corpus.expected_files()
    stamps = {name: _stamp(Path(file.path)) for name, file in files.items()}
    changed = [name for name in files if stamps[name] != known.get(name)]
    if (size := sum(stamps[name][0] for name in changed)) >= LONG_BYTES:
        say(f"corpus {corpus.fingerprint[:12]}: checking the digests of {size / 1e9:,.1f} GB")
    for name in changed:
        _require_digest(corpus, files[name])
    if changed:
        _remember(corpus.directory, stamps)


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _require_digest(corpus: Corpus, written: PlacedFile) -> None:
    path, expected = Path(written.path), written.sha256
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise CorpusError(
            f"{path} is not what was written: its SHA-256 begins with {actual[:12]}, that of corpus.json "
            f"with {expected[:12]}; {remedy(corpus.directory)}"
        )


def _known(directory: Path) -> Stamps:
    """What is remembered; nothing where the file is missing, or not what was written."""
    with suppress(OSError, ValueError, RecursionError):
        known = json.loads(read_regular(directory / CHECKED))
        return known if isinstance(known, dict) else {}
    return {}


def _remember(directory: Path, stamps: Stamps) -> None:
    """Who may not write there checks again each time."""
    part = directory / f".{CHECKED}.{uuid.uuid4().hex}"
    with suppress(OSError):
        try:
            part.write_text(json.dumps(stamps) + "\n")
            part.replace(directory / CHECKED)
        finally:
            part.unlink(missing_ok=True)
