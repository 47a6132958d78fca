"""Runs in event files of TensorBoard, read with its own library: the last value of each scalar."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scalevec.analysis.errors import DataError

EVENTS = "*tfevents*"
_HYPERPARAMETERS = "_hparams_/session_start_info"


def has_events(folder: Path) -> bool:
    """Whether there are event files below ``folder``."""
    return next(folder.rglob(EVENTS), None) is not None


def runs_in_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Every folder below ``folder`` with event files; its path is the name of the run.

    Raises :class:`DataError` without TensorBoard.
    """
    if find_spec("tensorboard") is None:
        raise DataError(f"{folder} has event files; to read them: pip install tensorboard")
    for run in sorted({path.parent for path in folder.rglob(EVENTS)}):
        yield {"run": run.relative_to(folder).as_posix(), **_scalars(run)}


def _scalars(run: Path) -> dict[str, Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    # One value of each is kept, the last.
    events = EventAccumulator(str(run), size_guidance={"scalars": 1, "tensors": 1})
    events.Reload()
    last = {tag: events.Scalars(tag)[-1] for tag in events.Tags()["scalars"]}
    values: dict[str, Any] = {tag: event.value for tag, event in last.items()}
    steps = [event.step for event in last.values()]
    for tag in events.Tags()["tensors"]:
        event = events.Tensors(tag)[-1]
        array = make_ndarray(event.tensor_proto)
        if array.size == 1 and array.dtype.kind == "f":
            values[tag] = array.item()
            steps.append(event.step)
    return {"_step": max(steps, default=None), **values, **_hyperparameters(events)}


def _hyperparameters(events: Any) -> dict[str, Any]:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    try:
        content = events.PluginTagToContent("hparams")[_HYPERPARAMETERS]
    except KeyError:  # a run without any
        return {}
    given = HParamsPluginData.FromString(content).session_start_info.hparams
    return {f"hparams.{name}": getattr(value, value.WhichOneof("kind")) for name, value in given.items()}
