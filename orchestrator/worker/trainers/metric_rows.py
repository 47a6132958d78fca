"""The rows that a foreign trainer logs, on their way into metrics.jsonl."""

import csv
import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from scalevec.model.train.record import Recorder
from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.orchestrator.worker.trainers.readings import (
    in_nats,
    number,
    path_below,
    require_unit,
    row_names,
    whole,
)
from scalevec.results.files import MOST_BYTES_OF_A_LINE, MOST_BYTES_OF_LINES, CorruptRecordError
from scalevec.results.opening import open_file, open_to_read
from scalevec.sweeps.trainers.any_trial import ForeignTrial

NOT_FINITE = 3
"""Rows of which a loss is not finite, one after the other, after which the training is not waited for."""

MOST_BYTES_COMPARED = 4096
"""Of what was read of a file of metrics, to see whether it was rewritten."""

SOON = 20
"""Rows within which a second one with more cells than the header is no row that a kill has torn."""

MOST_KEYS = 8
"""As many keys of rows are named where none is the one that is read."""


_HELD_OUT = ("val", "valid", "validation", "eval", "evaluation", "test", "dev", "heldout")
_TRAINING = ("train", "training")
_OF_KINDS = re.compile(
    r"(is_?)?(train(ing)?|val(id(ation)?)?|eval(uation)?|test|split|phase|mode|stage)|"
    r"([a-z]+_)?(rank|process|worker|gpu|node)(_?(id|index))?",
    re.IGNORECASE,
)
"""Keys under which a whole number, or true and false, tell kinds of rows apart."""


class LossNotFiniteError(Exception):
    """A loss stays NaN or infinite: the training has diverged."""


class MetricRows:
    """Keeps rows by the ``recorder``, in nats; of a repeated step the last counts.

    ``goes_on`` says whether what is recorded already was before this attempt began.
    """

    def __init__(self, recorder: Recorder, trial: ForeignTrial, goes_on: bool) -> None:
        self.recorder, self.readings = recorder, trial.trainer.readings
        self._step_tokens = trial.tokens // trial.steps if trial.steps else None
        before = recorder.recorded() if goes_on else ()
        self.last: dict[str, Any] = dict(before[-1]) if before else {}
        self.loss_initial: float | None = before[0].get("loss") if before else None
        self.tokens: int | None = max((row["tokens"] for row in before if row.get("tokens")), default=None)
        """Those of the last row that said any."""
        self.keys: dict[str, None] = {}
        """What the trainer calls the values in its rows, the first of them."""
        self._told: tuple[Mapping[str, Any], Mapping[str, str]] = {}, {}
        """The last row with a loss that this attempt took, and of which split or rank it is said to be."""
        self._splits: dict[tuple[str, str], str] = {}
        """By key and loss: the first split that such a row was said to be of."""
        self._not_finite: dict[str, list[int]] = {}
        """By loss: the steps, one after the other, at which it was last logged and not finite."""
        self._finite: Counter[str] = Counter()
        self._null_since: dict[str, int] = {}
        """By loss: the first step, after its last number, of a row with null for it and other numbers."""
        self._sparse: set[str] = set()
        """The losses for which a number came after such a row: null says that none was measured."""
        for row in before:
            self._note(row)
        self._wall_before, self._began = float(self.last.get("wall_s", 0.0)), time.monotonic()

    @property
    def wall_s(self) -> float:
        """Seconds of this attempt, and of those before that it goes on from."""
        return self._wall_before + time.monotonic() - self._began

    @property
    def step(self) -> int:
        """The last step that was logged."""
        return int(self.last.get("step", 0))

    def take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Record ``rows``; those without a step are no rows of metrics.

        Raises :class:`LossNotFiniteError`, and ``DefiniteError`` for what cannot be read.
        """
        kept = self._in_order(self._judged(rows))
        if not kept:
            return
        if self.last and kept[0]["step"] <= self.step:
            if kept[0]["step"] == self.step:
                kept[0] = {**self.last, **kept[0]}
            self.recorder.cut_back(kept[0]["step"] - 1)
        for row in kept:
            self.recorder.record(row)
            self.last = row
        if self._has_diverged():
            raise LossNotFiniteError(f"the loss has not been finite since step {self.diverged_at}")

    def _judged(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield what ``rows`` say up to where training has diverged, however many come at a time."""
        for raw in rows:
            if row := self._row(raw):
                self._note(row)
                yield row
                if self._has_diverged():
                    return

    def _has_diverged(self) -> bool:
        return any(len(steps) >= NOT_FINITE for steps in self._not_finite.values())

    @property
    def diverged_at(self) -> int | None:
        """Since which step a loss has not been finite; None where all were when they were last logged."""
        since = [steps[0] for steps in self._not_finite.values()]
        if not self.readings.result:  # which says what null cannot
            since += [step for name, step in self._null_since.items() if name not in self._sparse]
        return min(since, default=None)

    def _note(self, row: Mapping[str, Any]) -> None:
        for name in {"loss", *row_names(self.readings)} & row.keys():
            # What is recorded of one that is not finite is null.
            if row[name] is not None and math.isfinite(row[name]):
                self._not_finite.pop(name, None)
                self._finite[name] += 1
                if self._null_since.pop(name, None) is not None:
                    self._sparse.add(name)
            elif row["step"] not in (steps := self._not_finite.setdefault(name, [])):
                steps.append(row["step"])

    def _row(self, raw: Mapping[str, Any]) -> dict[str, Any] | None:
        readings, where = self.readings, "the trainer's metrics"
        if len(self.keys) < MOST_KEYS:
            self.keys = dict.fromkeys(islice(self.keys | dict.fromkeys(raw), MOST_KEYS))
        step = number(raw, readings.step, where)
        keys = {"loss": readings.training_loss or readings.loss} | row_names(readings)
        if step is None:
            of_row = (raw.get(key) for key in keys.values() if key)
            if any(isinstance(loss, float) and not math.isfinite(loss) for loss in of_row):
                raise DefiniteError(f"{where}: a row whose loss is not finite has no {readings.step}")
            return None
        where = f"{where}, step {step:g}"
        losses = {name: number(raw, key, where) for name, key in keys.items() if key}
        known = {name: loss for name, loss in losses.items() if loss is not None}
        if not known and not any("loss" in key and _is_finite(raw[key]) for key in raw):
            # JSON has no nan: null is one, but in a row of another loss, where none was measured.
            nulls = {name for name, key in keys.items() if key in raw and raw[key] is None}
            if any(_is_finite(raw[key]) for key in raw.keys() - {readings.step, readings.tokens, "epoch"}):
                # It may be that only other things were measured: what comes later tells.
                doubtful = {name for name in nulls if name in self._sparse or self._finite[name] < NOT_FINITE}
                self._null_since = dict.fromkeys(doubtful, whole(step, readings.step)) | self._null_since
                nulls -= doubtful
            known = dict.fromkeys(nulls, math.nan)
        if self.loss_initial is None and known:
            first = next(iter(known.values()))
            require_unit(first, readings)
            self.loss_initial = in_nats(first, readings)
        row: dict[str, Any] = {"step": whole(step, readings.step), "wall_s": self.wall_s}
        tokens = number(raw, readings.tokens, where) if readings.tokens else step * (self._step_tokens or 0)
        if tokens:
            row["tokens"] = self.tokens = whole(tokens, readings.tokens or "tokens")
        row |= {name: in_nats(loss, readings) for name, loss in known.items()}
        self._require_one_kind(row, raw)
        return row

    def _require_one_kind(self, row: Mapping[str, Any], raw: Mapping[str, Any]) -> None:
        """Refuse a loss of two splits or ranks: at one step, or training and held out at any."""
        names = row_names(self.readings)
        losses = {"loss", *names} & row.keys()
        if not losses:
            return
        kinds = {key: str(value) for key, value in raw.items() if _tells_a_kind(key, value)}
        (before, of_before), self._told = self._told, (row, kinds)
        twice = losses & before.keys() if before.get("step") == row["step"] else set[str]()
        is_other_loss = any(row[name] != before[name] for name in twice)
        for key, kind in kinds.items():
            first = of_before.get(key, kind) if is_other_loss else kind
            for name in losses if kind.lower() in (*_HELD_OUT, *_TRAINING) else ():
                known = self._splits.setdefault((key, name), kind)
                first = known if (known.lower() in _TRAINING) != (kind.lower() in _TRAINING) else first
            if first != kind and key not in names.values():
                raise DefiniteError(
                    f"the trainer's metrics, up to step {row['step']}: rows with {key} {first!r:.40} and "
                    f"{kind!r:.40} have the same loss; give each loss a key of its own"
                )

    def _in_order(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """One row for each step of ``rows``: going back to a step forgets those after it."""
        kept: list[dict[str, Any]] = []
        losses = {"loss", *row_names(self.readings)}
        for row in rows:
            if row["step"] < (kept[-1]["step"] if kept else self.step) and not losses & row.keys():
                continue  # it was late, and forgets no loss
            while kept and kept[-1]["step"] > row["step"]:
                kept.pop()
            if kept and kept[-1]["step"] == row["step"]:
                kept[-1] |= row
            else:
                kept.append(row)
        return kept


def _is_finite(value: Any) -> bool:
    with suppress(TypeError, ValueError, OverflowError):
        return not isinstance(value, bool) and math.isfinite(float(value))
    return False


def _tells_a_kind(key: str, value: Any) -> bool:
    """Whether a row's ``value`` may say which split or rank the row is of."""
    if re.fullmatch(r"\d+|true|false", str(value), re.IGNORECASE):
        return _OF_KINDS.fullmatch(key) is not None
    return isinstance(value, str) and value[:1].isalpha()


class MetricsFile:
    """A file of JSON lines, or of comma-separated values if it is called so, that is read as it grows.

    One that was rewritten (it begins otherwise, or what was read last is not there any more) is read from its
    beginning.
    """

    def __init__(self, out: Path, name: str) -> None:
        self.out, self.name = out, name
        self._head, self._offset, self._lines = b"", 0, 0
        self._header, self._is_csv = "", False
        self._longer, self._problem = -SOON, ""
        """The last line that has more cells than the header; its problem while no row came after it."""
        self._read_last = b""
        """The bytes before the offset."""

    def new_rows(self, *, is_whole: bool = False) -> list[Mapping[str, Any]]:
        """The rows since the last look; a last line without its end counts only in a file that is whole.

        Raises ``DefiniteError`` for a line that is no row.
        """
        path = path_below(self.out, self.name)
        try:
            content = self._read(path)
        except FileNotFoundError:
            return []
        except CorruptRecordError as problem:
            raise DefiniteError(str(problem)) from None
        end = len(content) if is_whole else content.rfind(b"\n") + 1
        self._offset += end
        self._read_last = (self._read_last + content[:end])[-MOST_BYTES_COMPARED:]
        # Of bytes: text within a row may hold further signs that end lines of text.
        lines = content[:end].splitlines()
        rows = [row for line in lines if (row := self._row(line.decode(errors="replace")))]
        if is_whole and self._problem:
            raise DefiniteError(self._problem)
        return rows

    def cut_torn_end(self) -> None:
        """Cut a last line that a killed command has left without its end: the next row would continue it."""
        with suppress(FileNotFoundError, CorruptRecordError):
            path = path_below(self.out, self.name)
            with os.fdopen(open_file(path, os.O_RDWR), "r+b") as stream:
                start = max(0, stream.seek(0, os.SEEK_END) - MOST_BYTES_OF_A_LINE)
                stream.seek(start)
                if (end := stream.read().rfind(b"\n") + 1) or not start:
                    stream.truncate(start + end)

    def _read(self, path: Path) -> bytes:
        """What was not read yet."""
        with open_to_read(path) as stream:
            head = stream.readline(MOST_BYTES_OF_A_LINE)
            size = stream.seek(0, 2)
            stream.seek(max(0, self._offset - len(self._read_last)))
            if not (head.startswith(self._head) and stream.read(len(self._read_last)) == self._read_last):
                self._offset, self._lines, self._read_last, self._longer = 0, 0, b"", -SOON
            if size - self._offset > MOST_BYTES_OF_LINES:
                raise CorruptRecordError(path, f"has grown by {size - self._offset:,} bytes at once")
            if head != self._head:
                self._head = head
                self._header = next(iter(head.decode("utf-8-sig", errors="replace").splitlines()), "")
                is_object = self._header.lstrip().startswith(("{", "["))
                is_table = not is_object and re.search("[,;\t]", self._header)
                self._is_csv = self.name.endswith(".csv") or bool(is_table)
            stream.seek(self._offset)
            return stream.read()

    def _row(self, line: str) -> Mapping[str, Any] | None:
        self._lines += 1
        if not line.strip():
            return None
        if self._is_csv:
            separator = max(",;\t", key=self._header.count)
            try:
                names, cells = (
                    next(csv.reader([text], delimiter=separator, skipinitialspace=True))
                    for text in (self._header, line)
                )
            except csv.Error as problem:
                raise DefiniteError(f"{self.name}, line {self._lines}: {problem}") from None
            if twins := {name for name in names if names.count(name) > 1} - {""}:
                raise DefiniteError(
                    f"{self.name} has several columns {min(twins)!r}; one of each name is read"
                )
            # A header may come again when a command goes on; more cells are a row that continues a torn one.
            self._problem = ""
            if any(cells[len(names) :]):
                many = f"has {len(cells)} cells, and its header {len(names)}"
                self._problem = f"{self.name}, line {self._lines}: {many}"
                if self._lines - self._longer < SOON:
                    raise DefiniteError(self._problem)
                self._longer = self._lines
                return None
            return dict(zip(names, cells, strict=False)) if self._lines > 1 and cells != names else None
        line = line.removeprefix("\ufeff")
        # A row that a kill has torn may be continued by the next one, which begins alike.
        key = re.match(r'\{\s*"[^"]*"', line)
        rows = (_json_of(line), _json_of(line[line.rfind(key[0]) :]) if key else None)
        row = next((row for row in rows if isinstance(row, dict)), None)
        if row is None:
            what = "JSON object" if "\0" not in line else "text in UTF-8"
            raise DefiniteError(f"{self.name}, line {self._lines}: is no {what}: {line[:80]!r}")
        return row


def _json_of(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None
