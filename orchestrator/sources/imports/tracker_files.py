"""Other people's trackers: their files, of which only regular ones are opened, and TensorBoard's scalars."""

import os
import stat
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scalevec.analysis.data.read import LARGEST_FILE_BYTES
from scalevec.analysis.errors import DataError

LARGEST_EVENTS_BYTES = 2_000_000_000
MARK = "tfevents"
_HYPERPARAMETERS = "_hparams_/session_start_info"


def files_below(folder: Path) -> Iterator[Path]:
    """Whatever is below ``folder`` but folders, in order; links to folders are not followed."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names))


def text_of(path: Path, largest: int = LARGEST_FILE_BYTES) -> str:
    """The text of a regular file of at most ``largest`` bytes. Raises :class:`DataError`."""
    try:
        # A pipe would be waited for, and a link may have been put there since anybody looked.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as stream:  # noqa: PTH123 (a descriptor)
            _require_regular(path, os.fstat(descriptor), largest)
            return stream.read(largest).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} cannot be read as UTF-8 text: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); links are not followed") from error


def _require_regular(path: Path, status: os.stat_result, largest: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path} is no regular file; links, pipes and devices are not read")
    if status.st_size > largest:
        raise DataError(f"{path} has {status.st_size} bytes; allowed: up to {largest}")


def event_files(folder: Path) -> list[Path]:
    """TensorBoard's event files below ``folder``."""
    return [path for path in files_below(folder) if MARK in path.name]


def runs_in_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Every folder below ``folder`` with event files; its path is the name of the run.

    Raises :class:`DataError` without TensorBoard.
    """
    for run, events in _loaded(folder):
        points = list(_points(events))
        last: dict[str, Any] = {tag: value for tag, _, value in points}
        steps = (step for _, step, _ in points)
        yield {"run": run, "_step": max(steps, default=None), **last, **_hyperparameters(events)}


def _loaded(folder: Path) -> Iterator[tuple[str, Any]]:
    """The name of each run and its events, of each tag the last one."""
    if find_spec("tensorboard") is None:
        raise DataError(f"{folder} has event files; to read them: pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = event_files(folder)
    for path in files:  # TensorBoard opens whatever is called so
        _require_regular(path, path.lstat(), LARGEST_EVENTS_BYTES)
    for run in sorted({path.parent for path in files}):
        events = EventAccumulator(str(run), size_guidance={"scalars": 1, "tensors": 1})
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
