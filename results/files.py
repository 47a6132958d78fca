"""Files that are whole or absent: atomic writes, write-once, and JSON lines that survive a torn tail."""

import errno
import fcntl
import io
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from scalevec.results.opening import CorruptRecordError as CorruptRecordError
from scalevec.results.opening import folder_of, open_file, open_to_read
from scalevec.results.opening import names_in as names_in

Kind = TypeVar("Kind", bound=dict[str, Any] | list[Any])

LOCK_WAIT_S = 30.0
_LOCK_POLL_S = 0.005
MOST_BYTES = 10**8
"""Of a record: the members.json of 100,000 trials in 20,000 cells has 28 MB."""
MOST_BYTES_OF_LINES = 2**28
"""Of a file of lines that is read as a whole."""
MOST_BYTES_OF_A_LINE = 2**24
MOST_MEMORY = 5 * 10**8
"""In bytes, for the values in one file; those of 100,000 trials in 20,000 cells take 80 MB by this count."""
_MEMORY_OF = {b"{": 200, b"[": 64, b",": 72}
"""What an object, a list and a value take at most when they are read: measured for the shortest ones."""
_SMALL = 2**20
_TAIL_BYTES = 65_536
# What file systems without locks answer.
_LOCKS_NOT_SUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


class AlreadyWrittenError(FileExistsError):
    """A file that is written once exists already."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EEXIST, "is written once and exists already", str(path))


def utc_now() -> str:
    """The present time in ISO 8601, UTC, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class FileIn:
    """Attribute of a class with a ``path``: the path of the file, or the folder, of this name in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: Any, _kind: type | None = None) -> Path:
        path: Path = folder.path / self._name
        return path


_unsynced = 0


@contextmanager
def unsynced() -> Iterator[None]:
    """Within it nothing is forced to the disk: for records that need not survive a loss of power."""
    global _unsynced
    _unsynced += 1
    try:
        yield
    finally:
        _unsynced -= 1


def _sync(descriptor: int) -> None:
    if not _unsynced:
        os.fsync(descriptor)


def write_atomic(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``: a reader, or a crash, sees the old file or the new one, never a part.

    Raises ``OSError`` that names ``path`` (no space, no permission); the old content is then intact.
    """
    with _written_aside(path, content) as (folder, temporary, name):
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        # The folder too: without it a loss of power may bring the old file back.
        _sync(folder)


def write_once(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``, whole, unless something is there; of several writers one succeeds.

    The link to the final name is what decides, so nobody ever sees a part of the file. Raises
    ``AlreadyWrittenError``, or ``OSError`` that names ``path``.
    """
    with _written_aside(path, content) as (folder, temporary, name):
        try:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            # NFS repeats a request whose answer was lost, and then reports our own link as another's.
            looks = (os.stat(each, dir_fd=folder, follow_symlinks=False) for each in (temporary, name))
            if not os.path.samestat(*looks):
                raise AlreadyWrittenError(path) from None
        _sync(folder)


@contextmanager
def _written_aside(path: Path, content: bytes) -> Iterator[tuple[int, str, str]]:
    """The open folder of ``path``, a synced temporary file in it that holds ``content``, and its own name.

    The temporary file is gone afterwards.
    """
    with _naming(path), folder_of(path) as (folder, name):
        # Beside its target, since a rename works within one file system only; hidden from listings.
        temporary = f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
        try:
            _write_synced(temporary, folder, content)
            yield folder, temporary, name
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise an ``OSError`` as one of ``path``: it names a temporary file, or only a descriptor."""
    try:
        yield
    except AlreadyWrittenError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write_synced(name: str, folder: int, content: bytes) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
    try:
        rest = memoryview(content)
        while rest:
            # os.write may take less than it is given.
            rest = rest[os.write(descriptor, rest) :]
        _sync(descriptor)
    finally:
        os.close(descriptor)


def sync_path(path: Path) -> None:
    """Make what anyone has written to a file, or the names in a folder, survive a loss of power."""
    if _unsynced:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def to_json(value: Any, indent: int | None = None) -> bytes:
    """Return ``value`` as ASCII JSON; numbers that are not finite become null, since JSON has none."""
    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
    except (TypeError, ValueError):  # a number that is not finite, a mapping that is no dict
        text = json.dumps(_finite(value), indent=indent, allow_nan=False)
    return text.encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def write_json(path: Path, value: Any) -> None:
    """``write_atomic`` of ``value`` as indented JSON."""
    write_atomic(path, to_json(value, indent=1) + b"\n")


def read_json(path: Path, kind: type[Kind]) -> Kind:
    """Return the JSON value in ``path``, which must be a ``kind`` (``dict`` or ``list``).

    Raises ``CorruptRecordError`` where it is not, ``FileNotFoundError`` where there is no file.
    """
    content = _content_of(path, MOST_BYTES)
    _require_room(path, content)
    return _parsed(path, content, kind, "")


def read_json_if_any(path: Path, kind: type[Kind]) -> Kind | None:
    """Return the JSON value in ``path`` as :func:`read_json` does, None where there is no file."""
    try:
        return read_json(path, kind)
    except FileNotFoundError:
        return None


def read_bytes_if_any(path: Path) -> bytes | None:
    """The content of ``path``, None where there is no file.

    Raises ``CorruptRecordError`` for what is no file, or larger than any record.
    """
    try:
        return _content_of(path, MOST_BYTES)
    except FileNotFoundError:
        return None


def _content_of(path: Path, most: int) -> bytes:
    """Without the buffer of ``path.read_bytes()``, which costs more than reading a small file."""
    with io.FileIO(open_file(path, most=most)) as stream:
        return stream.readall()


def _require_room(path: Path, content: bytes) -> None:
    """Raise ``CorruptRecordError`` where the values in ``content`` would take more memory than any record."""
    if len(content) < _SMALL:
        return
    # A character takes four bytes where one of them is outside of Unicode's first plane.
    needed = len(content) * (2 if content.isascii() else 8)
    needed += sum(content.count(mark) * size for mark, size in _MEMORY_OF.items())
    if needed > MOST_MEMORY:
        raise CorruptRecordError(path, f"would take {needed / 1e6:,.0f} MB of memory; a record has less")


def _parsed(path: Path, content: bytes, kind: type[Kind], where: str) -> Kind:
    try:
        value = _DECODER.decode(content.decode())
    except (ValueError, RecursionError) as error:
        problem = "is empty" if not content.strip() else f"is not whole JSON ({error})"
        raise CorruptRecordError(path, where + problem) from None
    if not isinstance(value, kind):
        expected = "an object" if kind is dict else "a list"
        raise CorruptRecordError(path, f"{where}holds {type(value).__name__} where {expected} is expected")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Python's decoder accepts NaN and Infinity unless told otherwise.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file; none where there is no file.

    A line counts once its line end is written: a torn last line is left out. Raises ``CorruptRecordError``
    for any other line that is not a JSON object.
    """
    with suppress(FileNotFoundError):
        return list(_parsed_lines(path))
    return []


def read_lines_before_damage(path: Path) -> list[dict[str, Any]]:
    """As :func:`read_lines`, but only up to the first line that is no JSON object.

    For files whose end a loss of power may have damaged, where what is missing can be made again.
    """
    whole: list[dict[str, Any]] = []
    with suppress(FileNotFoundError, CorruptRecordError):
        whole.extend(_parsed_lines(path))
    return whole


def _parsed_lines(path: Path) -> Iterator[dict[str, Any]]:
    content = _content_of(path, MOST_BYTES_OF_LINES)
    _require_room(path, content)
    for number, line in enumerate(io.BytesIO(content), 1):
        # What follows the last line end is a torn line.
        if line.endswith(b"\n"):
            yield _parsed(path, line, dict, f"line {number} ")


def read_last_line(path: Path) -> dict[str, Any] | None:
    """The last whole record of a JSON-lines file, however long the file is; None where there is none."""
    try:
        with open_to_read(path) as stream:
            end, tail = stream.seek(0, os.SEEK_END), b""
            # Two line ends bound the last whole line.
            while end > 0 and tail.count(b"\n") < 2:
                if len(tail) > MOST_BYTES_OF_A_LINE:
                    raise CorruptRecordError(path, f"ends in {len(tail):,} bytes that are no line")
                start = max(0, end - _TAIL_BYTES)
                stream.seek(start)
                tail, end = stream.read(end - start) + tail, start
    except FileNotFoundError:
        return None
    lines = tail.split(b"\n")[:-1]
    return _parsed(path, lines[-1], dict, "last line ") if lines else None


def append_line(path: Path, record: dict[str, Any], permitted: Callable[[], object] | None = None) -> None:
    """Append ``record`` to a JSON-lines file with a single write, after cutting back a torn last line.

    The line survives the end of this process; a loss of power only after :func:`sync_path`. Raises
    ``OSError`` that names ``path``; on a full device the file is as it was before.

    ``permitted`` is called once the file is open, and raises where nothing may be written. Who takes the
    file over replaces it: a process that was stopped after this look writes to the file that is gone.
    """
    line = to_json(record) + b"\n"
    with _naming(path):
        # To read as well, since the torn tail of another's line is looked for first.
        descriptor = open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            if permitted is not None:
                permitted()
            _lock(descriptor)
            _append_whole(path, descriptor, line)
        finally:
            os.close(descriptor)


def _append_whole(path: Path, descriptor: int, line: bytes) -> None:
    size = _cut_torn_tail(path, descriptor)
    written = 0
    try:
        written = os.write(descriptor, line)
    finally:
        # A full device takes a part of the line: cut off while the lock is held.
        if 0 < written < len(line):
            os.ftruncate(descriptor, size)
    if written < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _lock(descriptor: int) -> None:
    """Hold the file until it is closed, so that nobody takes a line that is being written for a torn one.

    Where the file system has no locks, single writes to the end are all there is. The wait is bounded:
    a process that was stopped in mid-append must not stop everybody else.
    """
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds the file") from None
            time.sleep(_LOCK_POLL_S)
        except OSError as error:
            if error.errno not in _LOCKS_NOT_SUPPORTED:
                raise
            return
        else:
            return


def _cut_torn_tail(path: Path, descriptor: int) -> int:
    """Cut what follows the last line end; the size in bytes that is left."""
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    start = max(0, size - MOST_BYTES_OF_A_LINE)
    whole = os.pread(descriptor, size - start, start).rfind(b"\n") + 1
    if start and not whole:
        raise CorruptRecordError(path, f"ends in {size - start:,} bytes that are no line")
    os.ftruncate(descriptor, start + whole)
    return start + whole


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Replace a JSON-lines file atomically."""
    write_atomic(path, b"".join(to_json(record) + b"\n" for record in records))


def cache_folder() -> Path:
    """Where it is; SCALEVEC_CACHE_DIR names another. It need not exist."""
    from platformdirs import user_cache_path

    named = os.environ.get("SCALEVEC_CACHE_DIR")
    return Path(named) if named else user_cache_path("scalevec", appauthor=False)
