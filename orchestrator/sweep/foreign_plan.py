"""What a plan says of a foreign trainer: its code, its times, how it stops."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.costs.estimates import UNKNOWN_TIME
from scalevec.sweeps.expansion.expand import code_files
from scalevec.sweeps.imported_modules import not_covered
from scalevec.sweeps.trainers.foreign_trial import ForeignTrial

if TYPE_CHECKING:
    from scalevec.orchestrator.sweep.sweep_run import SweepRun

UNKNOWN_COLUMNS = ("epochs", "vectors", "memory")
"""Columns of a plan that are a foreign trainer's own affair."""
MOST_LISTED = 8


def foreign_lines(run: "SweepRun", left: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what a person should know of the trainer before it runs."""
    section, template = run.sweep.trainer, run.cells[0].template
    assert section is not None
    assert isinstance(template, ForeignTrial)
    trainer = template.trainer
    named = _listed([file.path for file in trainer.files])
    by = f"code_version {trainer.code_version}" if trainer.code_version else f"the content of {named}"
    yield f"trainer: {' '.join(trainer.command) or trainer.function}; a trial rests on {by}"
    unseen = not_covered(run.sweep.source.folder, code_files(run.cells))
    if unseen and not trainer.code_version:
        yield f"not covered by identity: {_listed(unseen)}; name what it brings in under files"
    for words in dict.fromkeys(row["rate"] for row in left):
        yield words if words == UNKNOWN_TIME else f"time of each trial: {words}"
    if section.checkpoint is None:
        yield "no checkpoint is named: a trial that is interrupted starts over"
    if section.loss_validation is None and run.sweep.tune:
        yield (
            "warning: one loss for tuning and comparison (no loss_validation): rates are chosen on the text "
            "that is compared"
        )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
