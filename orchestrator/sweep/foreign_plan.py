"""What a plan says of a foreign trainer: its code, its times, how it stops."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.costs.estimates import UNKNOWN_TIME
from scalevec.sweeps.trainers.foreign_trial import ForeignTrial

if TYPE_CHECKING:
    from scalevec.orchestrator.sweep.sweep_run import SweepRun

UNKNOWN_COLUMNS = ("epochs", "vectors", "memory")
"""Columns of a plan that are a foreign trainer's own affair."""


def foreign_lines(run: "SweepRun", left: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what a person should know of the trainer before it runs."""
    section, template = run.sweep.trainer, run.cells[0].template
    assert section is not None
    assert isinstance(template, ForeignTrial)
    trainer = template.trainer
    named = ", ".join(file.path for file in trainer.files)
    by = f"code_version {trainer.code_version}" if trainer.code_version else f"the content of {named}"
    yield f"trainer: {' '.join(trainer.command) or trainer.function}; a trial rests on {by}"
    for words in dict.fromkeys(row["rate"] for row in left):
        yield words if words == UNKNOWN_TIME else f"time of each trial: {words}"
    if section.checkpoint is None:
        yield "no checkpoint is named: a trial that is interrupted starts over"
    if section.loss_validation is None and run.sweep.tune:
        yield (
            "warning: one loss for tuning and comparison (no loss_validation): rates are chosen on the text "
            "that is compared"
        )
