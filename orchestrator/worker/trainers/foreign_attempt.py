"""An attempt by a command of other people: its files, folder, fields and result."""

import math
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalevec.model.train.record import Recorder
from scalevec.orchestrator.attempts.kept_files import checkpoints_in, newest_checkpoint, others_in
from scalevec.orchestrator.attempts.retry_policy import since_retry
from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.orchestrator.worker.provenance import commit_of
from scalevec.orchestrator.worker.ranks import Ranks
from scalevec.orchestrator.worker.trainers.kept_source import folder_of_source
from scalevec.orchestrator.worker.trainers.metric_rows import MetricRows
from scalevec.orchestrator.worker.trainers.readings import (
    losses_of_rows,
    number,
    require_end,
    require_params,
    result_file,
    terminal_losses,
)
from scalevec.results.files import write_json
from scalevec.results.opening import make_folder, remove_folder
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import ForeignTrial, Protocol

FIELDS = "fields.json"
SET_ASIDE = "set_aside"
"""The folder, in the run directory, of checkpoints at which a trainer failed twice."""
_NO_LOSSES = dict.fromkeys(("loss", "loss_validation", "diverged_at_step"))


@dataclass(frozen=True)
class ForeignAttempt:
    """An attempt at ``trial`` on machine ``node`` (from 0), which starts ``processes`` there."""

    runs_dir: Path
    directory: RunDirectory
    trial: ForeignTrial
    protocol: Protocol
    node: int = 0
    processes: int = 1
    forks_ranks: bool = False

    @property
    def out(self) -> Path:
        """The folder that the trainer writes into."""
        return RunDirectory.of(self.runs_dir.resolve(), self.directory.trial_id).out_path

    @property
    def folder(self) -> Path:
        """The sweep file's. Raises ``DefiniteError`` where it is not there."""
        folder = Path(self.protocol.folder or ".").resolve()
        if not folder.is_dir():
            raise DefiniteError(f"{folder}: the folder of the sweep file is not on this machine")
        return folder

    def goes_on(self) -> bool:
        """Whether there is a checkpoint of the trainer's to go on from, which nobody else has written."""
        pattern = self.protocol.checkpoint
        is_there = bool(pattern) and any(checkpoints_in(self.out, pattern))
        return is_there and self._others() is None

    def _others(self) -> str | None:
        """Who else may have written what is there, of those whom nobody has agreed to."""
        return others_in(self.out, self.protocol.writers_agreed_to)

    def first_step(self) -> int:
        """The last step on record, where the attempt goes on; 0 where it starts over."""
        return self.directory.last_step() if self.goes_on() else 0

    def reached(self) -> dict[str, Any]:
        """The step; of a trainer that logs none, the time (in ns) of its newest checkpoint beside it."""
        step, goes_on = self.first_step(), self.goes_on()
        written = newest_checkpoint(self.out, self.protocol.checkpoint)[1] if goes_on and not step else 0
        return {"step": step} | ({"checkpoint": written} if written else {})

    def not_ended(self, asked: str) -> str:
        """What is said of a trainer that goes on after it was ``asked`` to stop."""
        return f"the command did not end within {self.protocol.grace_s:g} s of {asked}; it is killed"

    def origin(self) -> dict[str, Any]:
        """Of which commit the sweep's folder is; None outside a repository."""
        return {"trainer": {"commit": commit_of(Path(self.protocol.folder))}}

    def prepared(self, recorder: Recorder) -> MetricRows:
        """Make the folder ready, and hand out what takes the rows of metrics."""
        goes_on = self.goes_on()
        if not goes_on:
            if self.protocol.checkpoint and (others := self._others()):
                recorder.say(
                    f"the trial starts afresh: {others} may have written its checkpoints, and to load them "
                    "may run code; to go on from them: scalevec run --trust"
                )
            # Where the checkpoints alone were the fault, what the script knows else stays.
            if not any("set_aside" in event for event in since_retry(self.directory.events())):
                self._clear()
            recorder.cut_back(0)
        make_folder(self.out)
        if name := self.trial.trainer.readings.result:
            with suppress(FileNotFoundError):  # of an earlier attempt, which had not trained all
                (self.out / name).unlink()
        write_json(self.directory.path / FIELDS, self.fields())
        return MetricRows(recorder, self.trial, goes_on)

    def _clear(self) -> None:
        """Empty the trainer's folder; one of another user, who alone may do so, is renamed."""
        remove_folder(self.out)
        if self.out.exists():
            self.out.rename(self.out.with_name(f"{self.out.name}.{secrets.token_hex(4)}"))

    def failed(self) -> dict[str, Any]:
        """What the record of a failure says of the checkpoint at which the attempt began and ended.

        One at which two attempts have failed is set aside, once by its name: the next goes on from the one
        before, or afresh.
        """
        events = since_retry(self.directory.events())
        start = next((event for event in reversed(events) if event["state"] in ("running", "pending")), None)
        if start is None or start["state"] == "pending":  # it failed before it began
            return {}
        began_at = {name: start[name] for name in ("step", "checkpoint") if name in start}
        path, written = newest_checkpoint(self.out, self.protocol.checkpoint) if self.goes_on() else (None, 0)
        if path is None or self.reached() != began_at:
            return {}
        checkpoint = f"{path.relative_to(self.out)} of {written}"
        errors = [event for event in events if event.get("cause") == "error"]
        known = any(event.get("set_aside", "").endswith(f"-{path.name}") for event in errors)
        if known or not errors or errors[-1].get("failed_at") != checkpoint:
            return {"failed_at": checkpoint}
        aside = self.directory.path / SET_ASIDE / f"{written}-{path.name}"
        make_folder(aside.parent)
        path.rename(aside)
        return {"failed_at": checkpoint, "set_aside": str(aside)}

    def fields(self) -> dict[str, Any]:
        """What a trainer is told of the trial."""
        return {
            **self.trial.placeholders,
            "seed": self.trial.seed_value,
            "seed_index": self.trial.seed,
            "trial_id": self.directory.trial_id,
            "out": str(self.out),
        }

    def source(self) -> Path:
        """The folder that holds the trainer's files as the trial has them."""
        return folder_of_source(self.trial.trainer, self.folder)

    def result(self, rows: MetricRows, ranks: Ranks) -> dict[str, Any]:
        """The result of training that came to its end.

        Raises ``DefiniteError`` for one that is absent, or not what the plan has.
        """
        if rows.diverged_at is not None:
            return self.diverged(rows, ranks)
        losses = self._losses(rows)
        if not all(map(math.isfinite, losses.values())):
            return self.diverged(rows, ranks)
        return _NO_LOSSES | {"status": "completed"} | losses | self._facts(rows, ranks)

    def _losses(self, rows: MetricRows) -> dict[str, float]:
        readings = self.trial.trainer.readings
        if not readings.result:
            row, losses = losses_of_rows(rows.recorder.recorded(), readings)
            require_end(row["step"], row.get("tokens"), self.trial, "the last row with the losses")
            return losses
        where, record = readings.result, result_file(self.out, readings.result)
        tokens = number(record, readings.tokens, where) if readings.tokens else None
        step = number(record, readings.step, where)
        require_end(step, rows.tokens if tokens is None else tokens, self.trial, where)
        require_params(record, self.trial, where)
        return terminal_losses(record, readings, where)

    def diverged(self, rows: MetricRows, ranks: Ranks) -> dict[str, Any]:
        """The result of training that had a loss that is not finite."""
        step = rows.diverged_at or rows.step
        return _NO_LOSSES | {"status": "diverged", "diverged_at_step": step} | self._facts(rows, ranks)

    def _facts(self, rows: MetricRows, ranks: Ranks) -> dict[str, Any]:
        trial, options, initial, wall_s = self.trial, ranks.options, rows.loss_initial, rows.wall_s
        starts = [event for event in self.directory.events() if event["state"] == "running"]
        return {
            "loss_initial": initial if initial is not None and math.isfinite(initial) else None,
            "steps": rows.step or None,
            "n_tokens": trial.tokens,
            "n_params": trial.n_params,
            # C = 6 N D (Kaplan et al., arXiv 2001.08361).
            "flops": 6 * trial.n_params * trial.tokens,
            "wall_s": wall_s,
            "tokens_per_s": trial.tokens / wall_s,
            "device": options.device,
            "world_size": options.processes,
            "resumes": sum(bool(event.get("step") or event.get("checkpoint")) for event in starts),
            "keep": options.keep,
            "checkpoint": self.protocol.checkpoint,
        }
