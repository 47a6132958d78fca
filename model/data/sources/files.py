"""Files of a corpus: found by name or pattern, opened whether compressed or not, checked to be text."""

import codecs
import glob
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

Blocks = Sequence[bytes] | Iterator[bytes]
"""A document as consecutive blocks of its bytes: a large file is never held whole."""
BLOCK = 1 << 20
"""Bytes that are read at once."""

COMPRESSED = (".gz", ".zst")
"""The endings of files that :func:`opened` decompresses."""


class CorpusError(ValueError):
    """A corpus cannot be read, made or used; says which file or field, and what to do."""


class NotTextError(CorpusError):
    """A file holds other bytes than UTF-8 text without NUL."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"corpus file {str(path)!r} is not UTF-8 text: {fault}; convert it or leave it out")


def matching(patterns: Sequence[str]) -> list[Path]:
    """The files that the patterns name, sorted, each once; ``**`` crosses directories.

    Raises :class:`CorpusError` for a pattern that matches no file.
    """
    try:
        return sorted({path for pattern in patterns for path in _matches(pattern)})
    except OSError as error:
        raise _unreadable(error.filename, error) from error


def _matches(pattern: str) -> list[Path]:
    expanded = os.path.expanduser(pattern)  # noqa: PTH111 (Path.expanduser raises for an unknown user)
    if Path(expanded).is_file():  # a name may hold the characters [ ] * ? itself
        return [Path(expanded)]
    if Path(expanded).is_dir():
        raise CorpusError(f"corpus file {pattern!r} is a directory; name its files, like {pattern}/**/*.txt")
    paths = [Path(name) for name in glob.glob(expanded, recursive=True)]  # noqa: PTH207 (absolute patterns)
    matches = [path for path in paths if path.is_file()]
    if not matches:
        raise CorpusError(
            f"corpus file {pattern!r} does not exist; give a path or a pattern like data/**/*.txt"
        )
    return matches


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of the file at ``path``; those of ``.gz`` and ``.zst`` are decompressed as they are read.

    Raises :class:`CorpusError`, while it is open too, where it cannot be read or is damaged.
    """
    try:
        with _open(path) as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise damaged(path, error) from error
    except OSError as error:
        is_arrow = error.errno is None  # which says so of a broken page or stream
        raise damaged(path, error) if is_arrow else _unreadable(path, error) from error


def _open(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".zst":
        import pyarrow

        return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"), BLOCK)
    return path.open("rb")


def damaged(path: Path, error: object) -> CorpusError:
    """What is said of a file whose format is broken."""
    fault = " ".join(str(error).split())
    return CorpusError(f"corpus file {str(path)!r} is damaged: {fault}; fetch it again or leave it out")


def _unreadable(path: object, error: OSError) -> CorpusError:
    return CorpusError(f"corpus file {str(path)!r} cannot be read: {error.strerror or error}")


def text_blocks(path: Path) -> Iterator[bytes]:
    """The file at ``path`` in blocks. Raises :class:`NotTextError`; NUL separates the documents of bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    position = 0
    with opened(path) as file:
        while block := file.read(BLOCK):
            _check_block(path, decoder, block, position)
            position += len(block)
            yield block
    _check_block(path, decoder, b"", position)


def _check_block(path: Path, decoder: codecs.IncrementalDecoder, block: bytes, position: int) -> None:
    """Check the bytes at ``position``; an empty block is the end. A character may straddle two blocks."""
    if (nul := block.find(b"\0")) >= 0:
        raise NotTextError(path, f"a NUL byte at byte {position + nul}")
    begun = len(decoder.getstate()[0])
    try:
        decoder.decode(block, final=not block)
    except UnicodeDecodeError as error:
        raise NotTextError(path, f"{error.reason} at byte {position - begun + error.start}") from error
