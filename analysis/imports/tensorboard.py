"""Runs in event files of TensorBoard, read with its own library: the last value of each scalar."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scalevec.analysis.errors import DataError
from scalevec.analysis.imports.foreign_files import LARGEST_EVENTS_BYTES, files_below, require_regular

MARK = "tfevents"
_HYPERPARAMETERS = "_hparams_/session_start_info"


def has_events(folder: Path) -> bool:
    """Whether there are event files below ``folder``."""
    return next(_event_files(folder), None) is not None


def _event_files(folder: Path) -> Iterator[Path]:
    return (path for path in files_below(folder) if MARK in path.name)


def runs_in_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Every folder below ``folder`` with event files; its path is the name of the run.

    Raises :class:`DataError` without TensorBoard.
    """
    for run, events in _loaded(folder, 1):
        points = list(_points(events))
        last: dict[str, Any] = {tag: value for tag, _, value in points}
        steps = (step for _, step, _ in points)
        yield {"run": run, "_step": max(steps, default=None), **last, **_hyperparameters(events)}


def history_in_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Every scalar of every run below ``folder``, a record per value. Raises :class:`DataError`."""
    for run, events in _loaded(folder, 0):
        for tag, step, value in _points(events):
            yield {"run": run, "_step": step, tag: value}


def _loaded(folder: Path, kept: int) -> Iterator[tuple[str, Any]]:
    """The name of each run and its events, of each tag the last ``kept`` (0: all)."""
    if find_spec("tensorboard") is None:
        raise DataError(f"{folder} has event files; to read them: pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = list(_event_files(folder))
    for path in files:  # TensorBoard opens whatever is called so
        require_regular(path, LARGEST_EVENTS_BYTES)
    for run in sorted({path.parent for path in files}):
        events = EventAccumulator(str(run), size_guidance={"scalars": kept, "tensors": kept})
        events.Reload()
        yield run.relative_to(folder).as_posix(), events


def _points(events: Any) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value of each scalar, in the form of earlier versions or of today's."""
    from tensorboard.util.tensor_util import make_ndarray

    for tag in events.Tags()["scalars"]:
        yield from ((tag, event.step, event.value) for event in events.Scalars(tag))
    for tag in events.Tags()["tensors"]:
        for event in events.Tensors(tag):
            array = make_ndarray(event.tensor_proto)
            if array.size == 1 and array.dtype.kind == "f":
                yield tag, event.step, array.item()


def _hyperparameters(events: Any) -> dict[str, Any]:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    try:
        content = events.PluginTagToContent("hparams")[_HYPERPARAMETERS]
    except KeyError:  # a run without any
        return {}
    given = HParamsPluginData.FromString(content).session_start_info.hparams
    return {f"hparams.{name}": getattr(value, value.WhichOneof("kind")) for name, value in given.items()}
