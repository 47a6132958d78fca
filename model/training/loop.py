"""The training loop: from a trial and a corpus to one terminal result, stoppable at every step.

What is recorded goes to a :class:`Recorder`; the loop knows nothing of run directories. A run that is
stopped at any step and started again ends with the same bits on the CPU: the state is the checkpoint's,
the order of the data is a function of stream and step, the learning rate one of the step.
"""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from scalevec.model import accounting
from scalevec.model.config import RunOptions, Trial
from scalevec.model.identity import stream_of
from scalevec.model.schedules import learning_rate
from scalevec.model.training.checkpoints.folder import drop_leftovers, newest_step, set_aside_after
from scalevec.model.training.checkpoints.state import Checkpoint, load_newest, pack, save_checkpoint, unpack
from scalevec.model.training.checkpoints.trunk_states import TrunkState, load_trunk, save_trunk
from scalevec.model.training.corpora.batches import TrainingBatches
from scalevec.model.training.corpora.prepare import Corpus
from scalevec.model.training.evaluation import Evaluation, evaluate
from scalevec.model.training.measures.measure import MeasuredRun
from scalevec.model.training.measures.measurements import Measurements
from scalevec.model.training.optimizers import build_optimizer, set_learning_rate
from scalevec.model.training.progress import RunProgress, has_diverged, stays_whole, unbroken
from scalevec.model.transformer import Transformer, initialise
from scalevec.model.trunks import branch_step
from scalevec.model.vector_statistics import vector_statistics

TOKENS_AT_ONCE = 4096
"""Evaluation takes a batch's tokens at once, or this many where that is more: small batches are slow."""
LOSSES = ("loss", "loss_validation", "loss_blocks", "block_tokens")
_WITHOUT_BLOCKS = (
    "the losses of blocks are not kept: the test split has {} sequences, 16 or more are needed; "
    "no interval will hold the error of the test split itself"
)


class Recorder(Protocol):
    """Who keeps what the loop has to say, and tells it when to stop."""

    def record(self, row: Mapping[str, Any]) -> None:
        """Keep one row of metrics."""

    def cut_back(self, step: int) -> None:
        """Forget the rows of steps after ``step``: they will be run again."""

    def recorded(self) -> Sequence[Mapping[str, Any]]:
        """All rows that are kept, in the order of training, up to the first that is damaged."""

    def replace_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep these rows and no others: the run goes on from another's state."""

    def sync(self) -> None:
        """Make all that was recorded survive a loss of power."""

    def say(self, message: str, **details: Any) -> None:
        """Tell a person something that the result alone would not show, and programs the ``details``."""

    def origin(self) -> Mapping[str, Any]:
        """Who trains: plain values that tell trial and code, for those who take over the state."""

    def require_ownership(self) -> None:
        """Raise if another worker has taken over this trial."""

    def stop_requested(self) -> bool:
        """Whether the run shall stop at the next step, with a checkpoint."""


class TrainingInterruptedError(Exception):
    """The run was asked to stop; its state is in the newest checkpoint."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class TrainingRun:
    """One trial in training: model, optimizer, data and progress."""

    def __init__(
        self,
        trial: Trial,
        corpus: Corpus,
        options: RunOptions,
        recorder: Recorder,
        checkpoints: Path,
        trunk: Path | None = None,
    ) -> None:
        self.trial, self.corpus, self.options = trial, corpus, options
        self.recorder, self.checkpoints, self.trunk = recorder, checkpoints, trunk
        self.branch_step = branch_step(trial) if trunk is not None else 0
        self.device = torch.device(options.device)
        self.model = Transformer(trial.model)
        initialise(self.model, stream_of(trial))
        self.model.to(self.device)
        self.parameters = list(self.model.parameters())
        self.optimizer = build_optimizer(self.model, trial)
        tokens = corpus.split("train")
        self.batches = TrainingBatches(tokens, trial.sequence_length, trial.batch_sequences, stream_of(trial))
        self.measurements = Measurements(options, MeasuredRun(trial, self.model, self.optimizer, tokens))
        self.progress = RunProgress()

    def run(self) -> dict[str, Any]:
        """Train to the end and evaluate; returns the result as plain values.

        Raises :class:`TrainingInterruptedError` when the recorder asks to stop, after a checkpoint.
        """
        self._resume()
        last_checkpoint = started = time.monotonic()
        wall_before, measured_before = self.progress.wall_s, self.measurements.seconds
        while self.progress.step < self.trial.steps:
            row = self._step(self.progress.step)
            self.progress.step += 1
            # Measurements do not train: their time is left out of wall_s.
            measured = self.measurements.seconds - measured_before
            self.progress.wall_s = wall_before + time.monotonic() - started - measured
            self.recorder.record(row)
            if has_diverged(self.trial, self.progress, row["loss"]):
                return self._result("diverged")
            self._keep_for_branches()
            stop = self.recorder.stop_requested()
            if stop or time.monotonic() - last_checkpoint >= self.options.checkpoint_s:
                self._save()
                last_checkpoint = time.monotonic()
            if stop:
                raise TrainingInterruptedError(self.progress.step)
        return self._result("completed")

    def _resume(self) -> None:
        """Go on from the furthest state there is: the trunk's, else the trial's own, else the start."""
        self.recorder.require_ownership()
        # Only for the owner: of others it would drop the files that they are writing.
        drop_leftovers(self.checkpoints)
        self._set_aside_without_rows()
        if self._branch():
            return
        checkpoint = load_newest(self.checkpoints, self.recorder.say)
        if checkpoint is not None:
            unpack(checkpoint.tensors, self.model, self.optimizer)
            self.progress = RunProgress.kept_in(checkpoint)
            self.progress.resumes += 1
            self.recorder.say(f"resumed from the checkpoint after step {checkpoint.step}")
        self.recorder.cut_back(self.progress.step)

    def _set_aside_without_rows(self) -> None:
        """A checkpoint whose rows were lost, as with a machine's power, would leave a gap in the metrics."""
        reached = unbroken(self.recorder.recorded())
        for name in set_aside_after(self.checkpoints, reached):
            self.recorder.say(f"checkpoint {name} is not used: the metrics are whole only to step {reached}")

    def _branch(self) -> bool:
        """Take over the newest state of the trunk that is further than the trial's own; whether there is one.

        Its time and resumes count as the trial's, which would have spent them alone.
        """
        steps = range(newest_step(self.checkpoints) + 1, self.branch_step + 1)
        if self.trunk is None or not steps:
            return False
        state = load_trunk(self.trunk, steps, self._unfit, self.recorder.say)
        if state is None:
            return False
        unpack(state.checkpoint.tensors, self.model, self.optimizer)
        self.progress = RunProgress.kept_in(state.checkpoint)
        self.progress.trunk_step = self.progress.step
        self.recorder.replace_rows(state.rows)
        self._say_branched(self.trunk.name, state.checkpoint.facts.get("origin", {}))
        return True

    def _say_branched(self, trunk: str, origin: Mapping[str, Any]) -> None:
        """``origin`` is empty in states from before it was kept."""
        known = (f"{name} {str(origin[name])[:12]}" for name in ("trial_id", "commit") if origin.get(name))
        who = "".join(f", {words}" for words in known)
        self.recorder.say(
            f"branched from trunk {trunk[:12]} after step {self.progress.step}{who}",
            trunk={"trunk_id": trunk, "step": self.progress.step, **origin},
        )

    def _unfit(self, state: TrunkState) -> str:
        """Why going on from ``state`` would not be this trial alone; empty where it is."""
        facts = state.checkpoint.facts
        if facts["micro_batch"] != self.options.micro_batch or facts["device"] != str(self.device):
            how = f"micro_batch {facts['micro_batch']} on {facts['device']}"
            return f"it was trained with {how}, this is {self.options.micro_batch} on {self.device}"
        if unbroken(state.rows) != state.checkpoint.step:
            return "its metrics have a gap"
        if not stays_whole(self.trial, state.rows):
            return "this trial alone would have counted as diverged by then"
        return ""

    def _keep_for_branches(self) -> None:
        """Put the state where the trials of this trunk look, if one of them begins its cooldown here."""
        step = self.progress.step
        if self.trunk is None or step > self.branch_step or step not in self.options.branch_steps:
            return
        self.recorder.require_ownership()
        how = {"micro_batch": self.options.micro_batch, "device": str(self.device)}
        facts = {**self.progress.facts(), **how, "origin": dict(self.recorder.origin())}
        checkpoint = Checkpoint(step, pack(self.model, self.optimizer), facts)
        if save_trunk(self.trunk, checkpoint, self.recorder.recorded()):
            self.recorder.say(f"the state after step {step} is kept for other trials of the trunk")

    def _step(self, step: int) -> dict[str, Any]:
        """One optimizer step; returns its row of metrics (step counts from 1)."""
        started, measured = time.perf_counter(), self.measurements.seconds
        rate = learning_rate(self.trial, step)
        set_learning_rate(self.optimizer, rate)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._forward_and_backward(step)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.trial.optimizer.clip_norm).item()
        self.measurements.before_step(step + 1)
        self.optimizer.step()
        self.model.balance()
        if self.progress.loss_initial is None:
            self.progress.loss_initial = loss
        self.progress.recent_losses.append(loss)
        elapsed = time.perf_counter() - started - (self.measurements.seconds - measured)
        row: dict[str, Any] = {
            "step": step + 1,
            "tokens": (step + 1) * self.trial.batch_tokens,
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens_per_s": self.trial.batch_tokens / elapsed,
        }
        if (step + 1) % self.options.metrics_steps == 0 or step + 1 == self.trial.steps:
            row |= vector_statistics(self.model)
        row |= self.measurements.after_step(step + 1)
        return row

    def _forward_and_backward(self, step: int) -> float:
        """Accumulate the gradient of the mean loss of batch ``step``; returns that loss, nats/token."""
        inputs, targets = self.batches.batch(step)
        size = self.options.micro_batch or len(inputs)
        total = 0.0
        for start in range(0, len(inputs), size):
            part = slice(start, start + size)
            # By share: the last micro-batch may be smaller than the others.
            share = len(inputs[part]) / len(inputs)
            with self.autocast():
                loss, penalty = self.model.training_loss(
                    inputs[part].to(self.device), targets[part].to(self.device)
                )
            loss = loss * share
            objective = loss if penalty is None else loss + penalty * share
            objective.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total

    def autocast(self) -> torch.autocast:
        """bfloat16 for the matrix products where the trial asks for it."""
        enabled = self.trial.precision == "bfloat16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def _save(self) -> None:
        self.recorder.require_ownership()
        # Rows before the checkpoint: one that outlived its rows would be set aside on resume.
        self.recorder.sync()
        finished = self.progress.step == self.trial.steps
        weights_only = finished and self.options.keep == "weights"
        tensors = pack(self.model, None if weights_only else self.optimizer)
        save_checkpoint(self.checkpoints, Checkpoint(self.progress.step, tensors, self.progress.facts()))

    def _result(self, status: str) -> dict[str, Any]:
        losses: dict[str, Any] = dict.fromkeys(LOSSES)
        if status == "completed":
            test, validation = self._evaluate("test"), self._evaluate("validation")
            status = "completed" if math.isfinite(test.loss + validation.loss) else "diverged"
        if status == "completed":
            losses = {"loss": test.loss, "loss_validation": validation.loss}
            losses |= {"loss_blocks": test.loss_blocks, "block_tokens": test.block_tokens}
            if test.loss_blocks is None:
                self.recorder.say(_WITHOUT_BLOCKS.format(test.n_sequences))
            if self.options.keep != "none":
                self._save()
        diverged_at = self.progress.step if status == "diverged" else None
        return {"status": status, **losses, "diverged_at_step": diverged_at, **self._facts()}

    def _evaluate(self, split: str) -> Evaluation:
        """The losses over the first ``evaluation_tokens`` targets of ``split``."""
        most = self.trial.evaluation_tokens
        tokens = self.corpus.split(split)[: most + 1 if most else None]
        with self.autocast():
            length = self.trial.sequence_length
            sequences = max(self.trial.batch_sequences, TOKENS_AT_ONCE // length)
            return evaluate(self.model, tokens, length, sequences)

    def _facts(self) -> dict[str, Any]:
        trial, progress = self.trial, self.progress
        counts = accounting.count_parameters(trial.model)
        tokens = progress.step * trial.batch_tokens
        return {
            # A first loss of inf or nan becomes None, since JSON has no such number.
            "loss_initial": progress.loss_initial if math.isfinite(progress.loss_initial or 0.0) else None,
            "steps": progress.step,
            "n_tokens": trial.tokens,
            "epochs": trial.tokens / self.corpus.tokens["train"],
            **counts.columns(),
            # C = 6 N D (Kaplan et al., arXiv 2001.08361); flops_counted counts the operations.
            "flops": 6 * counts.matrices * trial.tokens,
            "flops_counted": accounting.flops_per_token(trial.model, trial.sequence_length) * trial.tokens,
            "wall_s": progress.wall_s,
            "tokens_per_s": tokens / progress.wall_s if progress.wall_s > 0 else None,
            "peak_memory_bytes": _peak_memory_bytes(self.device),
            "device": str(self.device),
            "micro_batch": self.options.micro_batch,
            "resumes": progress.resumes,
            "trunk_step": progress.trunk_step,
            "precision": trial.precision,
            "keep": self.options.keep,
            "test_tokens": self.corpus.tokens["test"],
            "validation_tokens": self.corpus.tokens["validation"],
            "bytes_per_token": self.corpus.bytes_per_token,
        }


def train(
    trial: Trial,
    corpus: Corpus,
    options: RunOptions,
    recorder: Recorder,
    checkpoints: Path,
    trunk: Path | None = None,
) -> dict[str, Any]:
    """Train ``trial`` from its newest state (if any) to the end, and evaluate it.

    On the CPU a run that was stopped and resumed gives the same bits as one that was not.

    Args:
        trial: What is trained.
        corpus: The prepared corpus of ``trial.corpus``.
        options: How it is run: device, micro-batch, checkpoints, measurements; no part of the identity.
        recorder: Who keeps the rows of metrics, and says when to stop.
        checkpoints: The folder of the trial's checkpoints; created when the first is written.
        trunk: The folder of the trial's trunk, if it has one (see ``model.trunks``): where it may find its
            first steps already done, and keeps its own for others at ``options.branch_steps``.

    Returns:
        The result as plain JSON values: ``status`` (``completed`` or ``diverged``), ``loss`` of the test
        split and ``loss_validation`` (nats/token, None where diverged), ``loss_blocks`` and ``block_tokens``
        of the test split (None under 16 sequences too), parameter counts, FLOPs, ``wall_s`` and how it was
        run.

    Raises:
        TrainingInterruptedError: The recorder asked to stop; the state is in the newest checkpoint.
        OSError: A checkpoint cannot be written.
    """
    return TrainingRun(trial, corpus, options, recorder, checkpoints, trunk).run()


def _peak_memory_bytes(device: torch.device) -> int | None:
    """Return the most bytes held so far: allocated on a CUDA device, resident in this process elsewhere.

    The resident figure holds the interpreter and its libraries (some 300 MB) and every earlier run of the
    process. None where the system does not tell.
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # getrusage gives bytes on macOS and KiB on Linux.
    return peak if sys.platform == "darwin" else peak * 1024
