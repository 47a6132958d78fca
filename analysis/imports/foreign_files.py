"""Files in folders of other people's trackers: links are not followed, and only regular files are opened."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from scalevec.analysis.data.table_file import LARGEST_FILE_BYTES
from scalevec.analysis.errors import DataError

LARGEST_EVENTS_BYTES = 2_000_000_000


def files_below(folder: Path) -> Iterator[Path]:
    """Whatever is below ``folder`` but folders, in order; links to folders are not followed."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names))


def require_regular(path: Path, largest: int) -> None:
    """Raise :class:`DataError` for a link, a pipe or a device, and for more than ``largest`` bytes."""
    _require(path, path.lstat(), largest)


def text_of(path: Path, largest: int = LARGEST_FILE_BYTES) -> str:
    """The text of a regular file of at most ``largest`` bytes. Raises :class:`DataError`."""
    try:
        # A pipe would be waited for, and a link may have been put there since anybody looked.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as stream:  # noqa: PTH123 (a descriptor)
            _require(path, os.fstat(descriptor), largest)
            return stream.read(largest).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} cannot be read as UTF-8 text: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); links are not followed") from error


def _require(path: Path, status: os.stat_result, largest: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path} is no regular file; links, pipes and devices are not read")
    if status.st_size > largest:
        raise DataError(f"{path} has {status.st_size} bytes; allowed: up to {largest}")
