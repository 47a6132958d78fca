"""Whatever a sweep file holds, it loads and expands or is refused with :class:`SweepError`."""

import random
import resource
import signal
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import yaml

from scalevec import sweeps
from scalevec.sweeps.expansion.expand import CorpusFacts, expand

N_FILES = 500
LONGEST_S = 30
"""No file may hang; one takes milliseconds."""
MOST_MEMORY_KB = 300_000

FRAGMENTS = [
    b"\0", b"\xff", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\t", b"\r", b"\n", b"\n\n  ", b"&a ", b"*a",
    b"[*a, *a]", b"<<: *a", b"!!python/object:os.system ", b"!!python/name:os.system", b"!!binary ", b"!x ",
    b"!!int ", b"%YAML 1.1\n---\n", b"---\n", b"...\n", b"[", b"]", b"{", b"}", b"[[[[[[[[", b"- - - - ",
    b"? ", b": ", b", ", b"|\n", b">-\n", b"'", b'"', b'"\\ud800"', b'"\\UFFFFFFFF"', b"1e999", b"-1", b"0",
    b"9" * 50, b".nan", b"-.inf", b"true", b"~", b"#", b"../", b"<script>", b"\xf0\x9f\x98\x80",
]  # fmt: skip

VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2**31, 2**63, 10**30, -0.0, 0.5, 1e-320, 1e308, float("nan"), float("inf"),
    "", "x", "x" * 5000, "baseline", "tiny-25k", "adamw", "\x1b[31m", "é", [], {}, [[]], [{}], [None],
    {"": 1}, {"a": {"b": {"c": 1}}}, [1, "1", 1.0], [0.1, 0.2], ["none"], {"name": "adamw"},
    {"preset": "hg"}, list(range(3000)), {"name": "x", "width": 1, "layers": 1},
    {"name": "x", "width": 16, "layers": 10_000}, {"learning_rate": [0.1, 0.2]},
    {"beta2": [0.1 + i / 1e4 for i in range(3000)]},
]  # fmt: skip


def bytes_changed(content: bytes, generator: random.Random) -> bytes:
    """``content`` with some bytes dropped, repeated, replaced or put in."""
    changed = bytearray(content)
    for _ in range(generator.choice([1, 1, 2, 5, 20])):
        start = generator.randrange(len(changed) + 1)
        end = min(len(changed), start + generator.choice([0, 1, 1, 3, 20]))
        new = generator.choice(
            [b"", generator.choice(FRAGMENTS), bytes([generator.randrange(256)]), changed[start:end] * 2]
        )
        changed[start:end] = new
    return bytes(changed)


def structure_changed(data: Any, generator: random.Random) -> bytes:
    """``data`` with some values replaced, dropped, renamed, repeated or moved, as YAML."""
    for _ in range(generator.choice([1, 1, 2, 5])):
        parent, key = generator.choice(places(data))
        change = generator.randrange(5)
        if change == 0 and isinstance(parent, dict):
            del parent[key]
        elif change == 1 and isinstance(parent, dict):
            parent[generator.choice([f"{key}x", key[:-1], "seeds", "grid", "zip"])] = parent.pop(key)
        elif change == 2 and isinstance(parent, list):
            parent.append(parent[key])
        elif change == 3:
            other, source = generator.choice(places(data))
            parent[key] = yaml.safe_load(yaml.safe_dump(other[source]))
        else:
            parent[key] = generator.choice(VALUES)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True).encode()


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in ``data``; its root stands in a list if nothing else does."""
    rows: list[tuple[Any, Any]] = []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        rows.append((data, key))
        rows += places(value) if not isinstance(value, list) or len(value) < 100 else []
    return rows or [([data], 0)]


def mutated(number: int, content: bytes) -> bytes:
    generator = random.Random(number)
    if number % 2:
        return bytes_changed(content, generator)
    text = content.decode().replace("8.0e-3, 1.6e-2, 3.2e-2", "0.008, 0.016, 0.032")
    data = yaml.safe_load(text) | generator.choice(
        [{}, {"grid": {"beta2": [0.9, 0.95]}, "zip": {"beta1": [0.9]}}]
    )
    return structure_changed(data, generator)


def outcome(path: Path, corpus: CorpusFacts) -> str:
    try:
        expand(sweeps.load(path), corpus)
    except sweeps.SweepError as error:
        return "refused" if str(error).startswith(f"{path}:") else "refused without a place"
    return "expanded"


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (500, 1000, 1500))]
)
def test_a_mutated_sweep_file_expands_or_is_refused_in_bounds(first, tmp_path, quickstart, corpus):
    path = tmp_path / "mutated.yaml"
    outcomes: Counter[str] = Counter()
    before = signal.signal(signal.SIGALRM, hung)
    memory_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        for number in range(first, first + N_FILES):
            path.write_bytes(mutated(number, quickstart.encode()))
            signal.alarm(LONGEST_S)
            outcomes[outcome(path, corpus)] += 1
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert outcomes.total() == N_FILES
    assert min(outcomes["expanded"], outcomes["refused"]) > outcomes.total() / 10
    assert set(outcomes) == {"expanded", "refused"}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kb < MOST_MEMORY_KB


def hung(number: int, frame: FrameType | None) -> None:
    raise AssertionError(f"a file took longer than {LONGEST_S} s")
