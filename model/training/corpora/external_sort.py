"""Sorting more records than memory holds: they are spread over files by the first byte of their key."""

import shutil
from collections.abc import Iterator
from pathlib import Path

MEMORY = 64 << 20
"""Bytes of records that are held before they are written out."""
KEY_BYTES = 32
_SIZE_BYTES = 8
_OVERHEAD = 200
"""Bytes that Python needs for a record beside its content."""
_BUCKETS = 256

Record = tuple[bytes, bytes]


class Spill:
    """Records of a key (32 bytes, evenly spread, as of a hash) and a payload, each key once.

    Of the payloads of one key the smallest is kept. ``directory`` is made where ``memory`` does not suffice.
    """

    def __init__(self, directory: Path, memory: int | None = None, depth: int = 0) -> None:
        self._directory, self._depth = directory, depth
        self._memory = MEMORY if memory is None else memory
        self._buckets: list[dict[bytes, bytes]] = [{} for _ in range(_BUCKETS)]
        self._sizes = [0] * _BUCKETS
        """Of the buckets that were written out, as they would be in memory."""
        self._held = 0
        self._spilled = False

    def add(self, key: bytes, payload: bytes) -> None:
        """Keep ``payload`` unless a smaller one has come under ``key``."""
        bucket = self._buckets[key[self._depth]]
        before = bucket.get(key)
        if before is None:
            self._held += len(payload) + _OVERHEAD
        if before is None or payload < before:
            bucket[key] = payload
        if self._held > self._memory:
            self._write_out()

    def _write_out(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for number, bucket in enumerate(self._buckets):
            if bucket:
                # Appended: equal keys of two writes meet when the file is read back.
                with self._path(number).open("ab") as file:
                    for key, payload in bucket.items():
                        file.write(key + len(payload).to_bytes(_SIZE_BYTES, "little"))
                        file.write(payload)
                        self._sizes[number] += len(payload) + _OVERHEAD
                bucket.clear()
        self._held = 0
        self._spilled = True

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:02x}"

    def __iter__(self) -> Iterator[Record]:
        """Every record, ascending by key; may be asked for again."""
        # All records on the disk or none: one bucket is never in both.
        if self._spilled and self._held:
            self._write_out()
        for number, bucket in enumerate(self._buckets):
            yield from self._sorted_file(number) if self._spilled else sorted(bucket.items())

    def _sorted_file(self, number: int) -> Iterator[Record]:
        path = self._path(number)
        if not self._sizes[number]:
            return
        # Too large to hold: spread it by the next byte of the key.
        if self._sizes[number] > self._memory and self._depth + 1 < KEY_BYTES:
            deeper = Spill(path.with_suffix(".more"), self._memory, self._depth + 1)
        else:
            deeper = Spill(path, 1 << 62, self._depth)  # fits: one file is held at a time
        try:
            for record in _records(path):
                deeper.add(*record)
            yield from deeper
        finally:
            deeper.remove()

    def remove(self) -> None:
        """Forget everything, and remove what was written out."""
        for bucket in self._buckets:
            bucket.clear()
        if self._spilled:
            shutil.rmtree(self._directory)


def _records(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        while head := file.read(KEY_BYTES + _SIZE_BYTES):
            key, size = head[:KEY_BYTES], int.from_bytes(head[KEY_BYTES:], "little")
            yield key, file.read(size)
