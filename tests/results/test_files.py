"""What a file of ours holds after crashes, races and full devices."""

import errno
import fcntl
import json
import multiprocessing
import os
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalevec.results import files
from scalevec.results.files import AlreadyWrittenError, CorruptRecordError, names_in

RECORDS = st.lists(
    st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=8), max_size=3),
    max_size=5,
)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(
    LEAVES | st.text(max_size=4),
    lambda parts: (
        st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), parts, max_size=3)
    ),
)


@pytest.fixture
def full_device(monkeypatch):
    """From the call on, the device takes three more bytes in all."""

    def fill() -> None:
        real_write, left = os.write, [3]

        def write(descriptor, content):
            if not left[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            taken, left[0] = min(left[0], len(content)), 0
            return real_write(descriptor, bytes(content[:taken]))

        monkeypatch.setattr(os, "write", write)

    return fill


@settings(max_examples=40)
@given(DOCUMENTS)
def test_indented_json_is_that_of_the_standard_library(value):
    assert files.to_json(value, indent=1).decode() == json.dumps(value, indent=1)


@pytest.mark.parametrize("write", [files.write_json, files.append_line])
def test_a_full_device_leaves_the_old_content_and_no_litter(tmp_path, full_device, write):
    path = tmp_path / "a"
    write(path, {"old": 1})
    before = path.read_bytes()
    full_device()
    with pytest.raises(OSError, match="No space left") as caught:
        write(path, {"new": 2})
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["a"]


def test_a_full_device_writes_no_file_once(tmp_path, full_device):
    full_device()
    with pytest.raises(OSError, match="No space left"):
        files.write_once(tmp_path / "a", b"content")
    assert names_in(tmp_path) == []


def _write_once_at_the_signal(path, number, barrier, outcomes):
    barrier.wait()
    try:
        files.write_once(path, str(number).encode() * 1000)
    except AlreadyWrittenError:
        outcomes.put(None)
    else:
        outcomes.put(number)


def test_of_processes_that_write_once_exactly_one_succeeds(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, outcomes = context.Barrier(3), context.Queue()
    arguments = [(tmp_path / "result", number, barrier, outcomes) for number in range(3)]
    processes = [context.Process(target=_write_once_at_the_signal, args=each) for each in arguments]
    for process in processes:
        process.start()
    winners = [outcome for _ in processes if (outcome := outcomes.get(timeout=300)) is not None]
    for process in processes:
        process.join()
    assert len(winners) == 1
    assert (tmp_path / "result").read_bytes() == str(winners[0]).encode() * 1000


def _append_many(path, number, barrier):
    barrier.wait()
    for index in range(60):
        files.append_line(path, {"writer": number, "index": index})


def test_lines_of_several_processes_are_all_there_whole_and_in_order(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    path = tmp_path / "events.jsonl"
    processes = [context.Process(target=_append_many, args=(path, n, barrier)) for n in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    records = files.read_lines(path)
    for number in range(3):
        assert [r["index"] for r in records if r["writer"] == number] == list(range(60))


@settings(deadline=None, max_examples=8)
@given(RECORDS)
def test_a_tail_torn_at_any_byte_is_left_out_and_repaired_by_the_next_append(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("torn") / "a.jsonl"
    lines = [files.to_json(record) + b"\n" for record in records]
    content = b"".join(lines)
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        whole = content[:size].count(b"\n")
        assert files.read_lines(path) == records[:whole]
        files.append_line(path, {"next": True})
        assert path.read_bytes() == b"".join(lines[:whole]) + b'{"next": true}\n'


def test_a_file_that_another_process_holds_too_long_is_an_error_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LOCK_WAIT_S", 0.0)
    path = tmp_path / "a.jsonl"
    with path.open("wb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="another process holds the file") as caught:
            files.append_line(path, {})
    assert caught.value.filename == str(path)


def test_lines_are_appended_where_the_file_system_has_no_locks(tmp_path, monkeypatch):
    no_locks = OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=no_locks))
    files.append_line(tmp_path / "a.jsonl", {"step": 1})
    assert files.read_lines(tmp_path / "a.jsonl") == [{"step": 1}]


def test_a_failed_write_names_the_file_and_not_its_temporary(tmp_path):
    path = tmp_path / "absent" / "a.json"
    for write in (files.write_atomic, files.write_once):
        with pytest.raises(FileNotFoundError) as caught:
            write(path, b"")
        assert caught.value.filename == str(path)


def test_an_unreadable_line_before_the_last_is_corrupt_and_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": \n{"a": 3}\n')
    with pytest.raises(CorruptRecordError, match=r"a\.jsonl: line 2 is not whole JSON"):
        files.read_lines(path)


def test_numbers_that_are_not_finite_are_written_as_null(tmp_path):
    path = tmp_path / "a.json"
    values = {"loss": float("nan"), "rates": [1.5, float("inf")], "deep": {"x": (-float("inf"),)}}
    files.write_json(path, values)
    assert json.loads(path.read_text()) == {"loss": None, "rates": [1.5, None], "deep": {"x": [None]}}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b'{"a": 1', "is not whole JSON"),
        (b'{"a": "\xff"}', "is not whole JSON"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b"[1]", "holds list where an object is expected"),
        (b"[" * 100_000, "is not whole JSON"),
    ],
)
def test_a_record_that_cannot_be_what_was_written_is_corrupt(tmp_path, content, problem):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError, match=f"{path}.*{problem}"):
        files.read_json(path, dict)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_read_as_an_object_or_as_corrupt(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "a.json"
    path.write_bytes(content)
    try:
        value = files.read_json(path, dict)
    except CorruptRecordError:
        return
    assert isinstance(value, dict)
