"""What a plan says of a foreign trainer: its code, its times, how it stops."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.costs.estimates import UNKNOWN_TIME
from scalevec.orchestrator.progress import counted
from scalevec.orchestrator.sweep.kept_plan import members_before
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.expansion.expand import code_files
from scalevec.sweeps.trainers.any_trial import ForeignTrial
from scalevec.sweeps.trainers.source_files import not_covered

if TYPE_CHECKING:
    from scalevec.orchestrator.sweep.sweep_run import SweepRun

UNKNOWN_COLUMNS = ("epochs", "parameters", "vectors", "memory")
"""Columns of a plan that are a foreign trainer's own affair."""
MOST_LISTED = 8
MOST_READ = 200_000
_FIELD = re.compile(r"\{(\w+)[^{}]*\}")
_INTERVAL = re.compile(
    r"([\w-]*(?:eval|val|test)\w*[-_](?:every|interval|freq\w*|steps|iters)|"
    r"(?<![\w-])(?![\w-]*(?:save|checkpoint))[\w-]*every)\W{1,4}(\d+)\b"
)


def foreign_lines(run: "SweepRun", left: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what a person should know of the trainer before it runs."""
    section, template = run.sweep.trainer, run.cells[0].template
    assert section is not None
    assert isinstance(template, ForeignTrial)
    trainer = template.trainer
    named = _listed([file.path for file in trainer.files])
    by = f"code_version {trainer.code_version}" if trainer.code_version else f"the content of {named}"
    yield f"trainer: {' '.join(trainer.command)}; a trial rests on {by}"
    unseen = not_covered(run.sweep.source.folder, code_files(run.cells))
    if unseen and not trainer.code_version:
        yield f"not covered by identity: {_listed(unseen)}; name what it brings in under files"
    for words in dict.fromkeys(row["rate"] for row in left):
        yield words if words == UNKNOWN_TIME else f"time of each trial: {words}"
    if section.tokens is None and not (template.steps and (section.metrics or section.pattern)):
        yield (
            "that losses are measured at the planned end cannot be checked: name tokens, or batch_tokens and "
            "metrics or a pattern with steps"
        )
    yield from _missed_ends(run)
    if section.checkpoint is None:
        yield "no checkpoint is named: a trial that is interrupted starts over"
    if section.loss_validation is None and run.sweep.tune:
        yield (
            "warning: one loss for tuning and comparison (no loss_validation): rates are chosen on the text "
            "that is compared"
        )


def changed_code(run: "SweepRun") -> list[str]:
    """Return a line for each file of the trainer that is not what earlier trials of this sweep rest on."""
    templates = (cell.template for cell in run.cells)
    files = (file for trial in templates if isinstance(trial, ForeignTrial) for file in trial.trainer.files)
    now = {file.path: file.digest for file in files}
    outdated: Counter[str] = Counter()
    for record in members_before(run.folder) if now else ():
        with suppress(KeyError, FileNotFoundError, CorruptRecordError):  # of our own loop, or nowhere
            before = RunDirectory.of(run.runs_dir, record["trial_id"]).trial()["semantic"]["trainer"]["files"]
            then = {file["path"]: file["digest"] for file in before}
            outdated.update(name for name, digest in now.items() if then.get(name, digest) != digest)
    return [
        f"{name} has changed since {counted(count, 'trial')} of this sweep, which would be trained again "
        "(a code_version in the trainer's section keeps results across edits that change none)"
        for name, count in sorted(outdated.items())
    ]


def _missed_ends(run: "SweepRun") -> Iterator[str]:
    """A line for each rung whose last step no evaluation falls on, as far as the command says when."""
    for rung, trial in {cell.rung: cell.template for cell in run.cells}.items():
        assert isinstance(trial, ForeignTrial)
        for name, every in _intervals(trial, run.sweep.source.folder).items():
            if trial.steps and every > 1 and trial.steps % every and (trial.steps - 1) % every:
                yield (
                    f"warning: rung {rung} ends at step {trial.steps:,}, and {name} is {every:,}: where the "
                    "script evaluates at these steps alone, its trials fail; evaluate after the last step, "
                    "or choose tokens so that an evaluation falls on it"
                )


def _intervals(trial: ForeignTrial, folder: Path) -> dict[str, int]:
    """The steps between two evaluations by their names: in the words of the command, else in a file of it."""
    given = defaultdict(str, trial.placeholders)
    words = [_FIELD.sub(lambda field: str(given[field[1]]), word) for word in trial.trainer.command]
    script = next((word for word in words if word.endswith(".py")), "")
    texts = [" ".join(words)]
    for file in trial.trainer.files:
        if file.path in words and file.path != script:
            with suppress(OSError):
                texts.append((folder / file.path).read_text(errors="replace")[:MOST_READ])
    named = [match for text in texts for match in _INTERVAL.finditer(text)]
    return {match[1].strip("-"): int(match[2]) for match in reversed(named)}


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
