"""Finished trials in one small file, for another RUNS_DIR: results, environments, thinned curves.

A line of JSON for each trial, compressed. Where a trial has not begun it is made from its line as if it
had been trained there, the result last: a run that needs it finds it done.
"""

import json
import lzma
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scalevec.results.claims import newest_attempt
from scalevec.results.files import CorruptRecordError, write_atomic, write_lines
from scalevec.results.run_directory import RESULT_STATES, RunDirectory, is_trial_id

ROWS = 24
"""Of a training curve, the last one among them."""
_DIGITS = 6
_OF_A_MACHINE = ("host", "command")
"""What an environment says of where it was: paths and names that mean nothing elsewhere."""
_PARTS = {
    "semantic": dict,
    "descriptive": dict,
    "environments": list,
    "metrics": list,
    "result": dict,
    "event": dict,
}


def write_finished(path: Path, directories: Sequence[RunDirectory]) -> None:
    """Write trials, all of which have a result, to ``path``; their order does not matter."""
    lines = [json.dumps(_record(each)) for each in sorted(directories, key=lambda each: each.trial_id)]
    content = "".join(f"{line}\n" for line in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, lzma.compress(content, preset=9))


def restore_finished(path: Path, runs_dir: Path) -> int:
    """Finish the trials in ``path`` in RUNS_DIR as far as they have not begun there; return how many.

    Raises ``CorruptRecordError`` for a file that cannot be what was written, ``OSError`` where there is none.
    """
    restored = 0
    for record in _records(path):
        directory = RunDirectory.of(runs_dir, record["trial_id"])
        if directory.result_path.exists() or newest_attempt(directory):
            continue
        # One that waits to be run, or that was half restored, has a directory already.
        directory.create(record["semantic"], record["descriptive"])
        known = directory.environments()
        for environment in record["environments"]:
            if environment not in known:
                directory.write_environment(environment)
        directory.replace_metrics(record["metrics"])
        earlier = [event for event in directory.events() if event["state"] != record["event"]["state"]]
        write_lines(directory.events_path, [*earlier, record["event"]])
        directory.write_result(record["result"])
        restored += 1
    return restored


def _record(directory: RunDirectory) -> dict[str, Any]:
    result = directory.result()
    if result is None:
        raise ValueError(f"trial {directory.trial_id} has no result")
    trial, state = directory.trial(), directory.state()
    return {
        "trial_id": directory.trial_id,
        "event": {"time": state.time, "state": state.state, "cause": state.cause, "attempt": state.attempt},
        "semantic": trial["semantic"],
        "descriptive": trial["descriptive"],
        "environments": [
            {name: value for name, value in record.items() if name not in _OF_A_MACHINE}
            for record in directory.environments()
        ],
        "metrics": _thinned(directory.metrics()),
        "result": result,
    }


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Losses along the way, and all means and deviations of the last row."""
    last = len(rows) - 1
    kept = sorted({round(index * last / (ROWS - 1)) for index in range(ROWS)}) if rows else []
    return [
        {name: _short(value) for name, value in rows[index].items() if _is_kept(name, is_last=index == last)}
        for index in kept
    ]


def _is_kept(name: str, *, is_last: bool) -> bool:
    return name in ("step", "tokens", "loss") or (is_last and name.endswith(("/mean", "/deviation")))


def _short(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _records(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = lzma.decompress(path.read_bytes()).decode().splitlines()
        records = [json.loads(line) for line in lines]
    except (lzma.LZMAError, ValueError) as error:
        raise CorruptRecordError(path, f"holds no finished trials ({error})") from None
    for number, record in enumerate(records, 1):
        named = record if isinstance(record, dict) else {}
        wrong = [name for name, kind in _PARTS.items() if not isinstance(named.get(name), kind)]
        if wrong or not is_trial_id(str(named.get("trial_id"))):
            raise CorruptRecordError(path, f"line {number} is no finished trial")
        if named["result"].get("status") not in RESULT_STATES:
            raise CorruptRecordError(path, f"line {number} has no result")
        yield named
