"""The training loop: from a trial and a corpus to one terminal result, stoppable at every step.

What is recorded goes to a :class:`Recorder`; the loop knows nothing of run directories. A run that is
stopped at any step and started again ends with the same bits on the CPU: the state is the checkpoint's,
the order of the data is a function of stream and step, the learning rate one of the step.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from scalevec.model import accounting
from scalevec.model.config import RunOptions, Trial, require_whole_parts
from scalevec.model.data.corpus import Corpus, TrainingBatches
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.identity import branch_step, stream_of
from scalevec.model.schedules import learning_rate
from scalevec.model.theory.measure import Measurements, vector_statistics
from scalevec.model.train import checkpoint_steps, newest_step
from scalevec.model.train.checkpoint import BackgroundWriter, Checkpoint
from scalevec.model.train.ddp import ALONE, World
from scalevec.model.train.devices import peak_memory_bytes, unknown_peak
from scalevec.model.train.evaluation import Evaluation, evaluate
from scalevec.model.train.optim import build_optimizer, set_learning_rate
from scalevec.model.train.record import (
    Recorder,
    RunProgress,
    TrainingInterruptedError,
    has_diverged,
    timing_of,
)
from scalevec.model.train.starting_state import StartingState, StartingStates, how_trained, save_trunk
from scalevec.model.train.step import (
    AllocatedMemory,
    BatchFeed,
    PendingMetrics,
    Row,
    compile_blocks,
    fold_once,
    steps_between_readings,
)

LOG_S = 10.0
"""Seconds between two lines of the log that say how far the training is."""
LOSSES = ("loss", "loss_validation", "loss_blocks", "block_tokens")
_WITHOUT_BLOCKS = (
    "the losses of blocks are not kept: the test split has {} sequences, 16 or more are needed; "
    "no interval will hold the error of the test split itself"
)


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
        world: World = ALONE,
    ) -> None:
        require_whole_parts(trial, options)
        self.trial, self.corpus, self.options, self.world = trial, corpus, options, world
        self.recorder, self.checkpoints, self.trunk = recorder, checkpoints, trunk
        self.branch_step = branch_step(trial) if trunk is not None else 0
        self.states = StartingStates(trial, options, recorder, checkpoints, trunk)
        self.device = torch.device(options.device)
        self.model = Transformer(trial.model)
        self.model.recomputes = options.recompute == "block"
        self.model.residual_type = torch.bfloat16 if trial.precision == "bfloat16-residual" else None
        self.is_narrow = trial.product_precision == "bfloat16"
        self.read_every = steps_between_readings(trial, options)
        initialise(self.model, stream_of(trial))
        # First: what is sharded goes to the device a block at a time.
        world.prepare(self.model)
        self.model.to(self.device)
        self.parameters = list(self.model.parameters())
        self.optimizer = build_optimizer(self.model, trial, world.shard_groups)
        self.training_loss = world.objective(self.model)
        tokens = corpus.split("train")
        batches = TrainingBatches(tokens, trial.sequence_length, trial.batch_sequences, stream_of(trial))
        part, ahead = world.part(trial.batch_sequences), self.device.type != "cpu"
        self.feed = BatchFeed(batches, part, trial.steps, self.device, ahead=ahead)
        self.pending = PendingMetrics(trial.batch_tokens)
        self.measurements = Measurements(options, trial, self.model, self.optimizer, tokens)
        self.progress = RunProgress(compiled=options.compiled)
        self.logged = -math.inf
        self.writer = BackgroundWriter(checkpoints)
        self.allocated = AllocatedMemory(self.device)

    def run(self) -> dict[str, Any]:
        """Train to the end and evaluate; returns the result as plain values.

        Raises :class:`TrainingInterruptedError` when the recorder asks to stop, after a checkpoint.
        """
        with self.writer, self.feed:
            return self._run()

    def _run(self) -> dict[str, Any]:
        self._resume()
        self._compile()
        last_checkpoint = started = time.monotonic()
        wall_before, measured_before = self.progress.wall_s, self.measurements.seconds
        while self.progress.step < self.trial.steps:
            with self.allocated.watched(self._held()):
                self._step(self.progress.step + len(self.pending))
            if not self._reads(self.progress.step + len(self.pending)):
                continue
            rows = self.pending.read(self.measurements.seconds)
            # Measurements do not train: their time is left out of wall_s.
            measured = self.measurements.seconds - measured_before
            self.progress.wall_s = wall_before + time.monotonic() - started - measured
            if self._recorded(rows):
                return self._result("diverged")
            self._keep_for_branches()
            due = time.monotonic() - last_checkpoint >= self.writer.interval(self.options.checkpoint_s)
            stop = self.world.any_rank(self.recorder.stop_requested())
            if self.world.leader_says(due) or stop:
                self._save()
                last_checkpoint = time.monotonic()
            if stop:
                self.writer.wait()
                raise TrainingInterruptedError(self.progress.step)
        return self._result("completed")

    def _resume(self) -> None:
        """Go on from the furthest state there is: the trunk's, else the trial's own, else the start."""
        self.recorder.require_ownership()
        start = self.states.furthest() if self.world.leads else StartingState()
        checkpoint = self.world.broadcast_checkpoint(start.checkpoint)
        if checkpoint is not None:
            self.world.unpack(checkpoint.tensors, self.model, self.optimizer)
            self.progress = RunProgress.kept_in(checkpoint)
        start.settle(self.recorder)

    def _compile(self) -> None:
        """Compile the blocks where the run began so: an attempt keeps the arithmetic of those before it."""
        self.first_step = self.progress.step + 1
        if self.progress.compiled != self.options.compiled:
            self.recorder.say(f"goes on {self.progress.arithmetic}, as it began")
        card = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else None
        if card and (problem := unknown_peak(self.trial.product_precision, card)):
            self.recorder.say(problem)
        if self.progress.compiled:
            self.allocated.left = 0  # nothing can be compiled meanwhile
            compile_blocks(self.model)

    def _keep_for_branches(self) -> None:
        """Put the state where the trials of this trunk look, if one of them begins its cooldown here."""
        step = self.progress.step
        if self.trunk is None or step > self.branch_step or step not in self.options.branch_steps:
            return
        if not self.world.leader_says(step not in checkpoint_steps(self.trunk)):
            return
        self.recorder.require_ownership()
        origin = dict(self.recorder.origin())
        facts = {**how_trained(self.options), **self.progress.facts(), "origin": origin}
        checkpoint = Checkpoint(step, self.world.pack(self.model, self.optimizer), facts)
        if self.world.leads and save_trunk(self.trunk, checkpoint, self.recorder.recorded()):
            self.recorder.say(f"the state after step {step} is kept for other trials of the trunk")

    def _reads(self, step: int) -> bool:
        """Whether the device is waited for after ``step``: only then is anything recorded or kept.

        The first step of a process stands alone, as it takes longer than others.
        """
        wanted = {self.first_step, self.trial.steps, *self.options.branch_steps}
        return step % self.read_every == 0 or step in wanted

    def _recorded(self, rows: Sequence[Row]) -> bool:
        """Record ``rows``, up to the first at which the run has diverged; whether there is one."""
        for row in rows:
            self.progress.take(row["step"], row["loss"])
            self.recorder.record(row)
            self._log(row)
            if has_diverged(self.trial, self.progress, row["loss"]):
                return True
        return False

    def _log(self, row: Row) -> None:
        """Print the first ``row``, the last, and one every few seconds between them."""
        now, steps = time.monotonic(), self.trial.steps
        if not self.world.leads or (now - self.logged < LOG_S and row["step"] < steps):
            return
        self.logged = now
        speed = f"  {row['tokens_per_s']:,.0f} tokens/s" if row["tokens_per_s"] else ""
        print(f"step {row['step']:,}/{steps:,}  loss {row['loss']:.4f}{speed}", flush=True)

    def _step(self, step: int) -> None:
        """One optimizer step; its row of metrics (step counts from 1) is left unread."""
        self.pending.begin(self.measurements.seconds)
        rate = learning_rate(self.trial, step)
        set_learning_rate(self.optimizer, rate)
        self.optimizer.zero_grad(set_to_none=self.world.frees_gradients)
        loss = self._forward_and_backward(step)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.trial.optimizer.clip_norm)
        with self._uncompiled():
            self.measurements.before_step(step + 1)
        self.world.step(self.optimizer)
        self.world.sum_loads(self.model.loads())
        self.model.balance()
        row: Row = {
            "step": step + 1,
            "tokens": (step + 1) * self.trial.batch_tokens,
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": self.world.whole(norm),
            "tokens_per_s": None,
        }
        if (step + 1) % self.options.metrics_steps == 0 or step + 1 == self.trial.steps:
            row |= vector_statistics(self.model, self.world.vector)
        with self._uncompiled():
            row |= self.measurements.after_step(step + 1)
        self.pending.add(row)

    def _forward_and_backward(self, step: int) -> Tensor:
        """Accumulate the gradient of the mean loss of batch ``step``; returns that loss, nats/token."""
        whole = self.trial.batch_sequences
        started = time.perf_counter()
        inputs, targets = self.feed.batch(step)
        self.progress.data_s += time.perf_counter() - started
        size = self.options.micro_batch or len(inputs)
        parts = [slice(start, start + size) for start in range(0, len(inputs), size)]
        if self.options.needs_counting_pass(self.trial):
            self._count_choices(inputs, parts)
        # Added up on the device, in float64: what reads it waits for it.
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        with self._fold_once(len(parts)):
            for part in parts:
                # By share: the last micro-batch may be smaller than the others.
                share = len(inputs[part]) / whole
                with nullcontext() if part is parts[-1] else self.world.accumulating():
                    with self.autocast():
                        loss, penalty = self.training_loss(inputs[part], targets[part])
                    loss = loss * share
                    objective = loss if penalty is None else loss + penalty * share
                    objective.backward()  # type: ignore[no-untyped-call]
                total += loss.detach()
        return self.world.sum(total)

    def _fold_once(self, n_parts: int) -> AbstractContextManager[None]:
        """For all micro-batches, where blocks are compiled; shares are folded when they are gathered."""
        if n_parts == 1 or self.options.shard or not self.progress.compiled:
            return nullcontext()
        return fold_once(self.model, torch.bfloat16 if self.is_narrow else None)

    def _count_choices(self, inputs: Tensor, parts: Sequence[slice]) -> None:
        """Tell the model how the whole batch chooses its experts, which a part of it cannot know."""
        with self.autocast():
            counts = [self.model.choices(inputs[part]) for part in parts]
        loads = torch.stack(counts).sum(0)
        self.world.sum_loads(list(loads))
        self.model.set_batch_load(loads)

    def _uncompiled(self) -> AbstractContextManager[None]:
        """Measurements differentiate twice, and evaluations have shapes that are not worth compiling."""
        return torch.compiler.set_stance("force_eager") if self.progress.compiled else nullcontext()

    def autocast(self) -> torch.autocast:
        """bfloat16 for the matrix products where the trial asks for it."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.is_narrow)

    def _save(self) -> None:
        self.recorder.require_ownership()
        # Rows before the checkpoint: one that outlived its rows would be set aside on resume.
        self.recorder.sync()
        finished = self.progress.step == self.trial.steps
        # What evaluates takes no further step.
        weights_only = finished and self.options.keep != "all"
        tensors = self.world.pack(self.model, None if weights_only else self.optimizer)
        if self.world.leads:
            facts, is_copy = self.progress.facts(), self.options.shard
            self.writer.write(Checkpoint(self.progress.step, tensors, facts, is_copy))
            self.progress.checkpoints_s += self.writer.last_s

    def _result(self, status: str) -> dict[str, Any]:
        losses: dict[str, Any] = dict.fromkeys(LOSSES)
        if status == "completed":
            self._keep_before_evaluation()
            test, validation = self._evaluate("test"), self._evaluate("validation")
            status = "completed" if math.isfinite(test.loss + validation.loss) else "diverged"
        if status == "completed":
            losses = {"loss": test.loss, "loss_validation": validation.loss}
            losses |= {"loss_blocks": test.loss_blocks, "block_tokens": test.block_tokens}
            if test.loss_blocks is None:
                self.recorder.say(_WITHOUT_BLOCKS.format(test.n_sequences))
            self._save_finished(self.options.keep != "none")
        diverged_at = self.progress.step if status == "diverged" else None
        return {"status": status, **losses, "diverged_at_step": diverged_at, **self._facts()}

    def _keep_before_evaluation(self) -> None:
        """Leave memory to the evaluation, and keep the end of a long run: no step of it is taken again."""
        self.optimizer.zero_grad(set_to_none=True)
        self._save_finished(self.progress.wall_s > self.options.checkpoint_s)

    def _save_finished(self, wanted: bool) -> None:
        """Keep the state after the last step, if that is ``wanted`` and not done yet."""
        self.writer.wait()
        missing = newest_step(self.checkpoints) != self.progress.step
        if self.world.leader_says(wanted and missing):
            self._save()

    def _held(self) -> Iterator[Tensor]:
        """What is held between two steps."""
        yield from (*self.parameters, *self.model.buffers())
        yield from (parameter.grad for parameter in self.parameters if parameter.grad is not None)
        yield from (t for t in tree_leaves(dict(self.optimizer.state)) if isinstance(t, Tensor))

    def _evaluate(self, split: str) -> Evaluation:
        """The losses over the first ``evaluation_tokens`` targets of ``split``."""
        most = self.trial.evaluation_tokens
        tokens = self.corpus.split(split)[: most + 1 if most else None]
        at_once, started = self.options.evaluated_at_once(self.trial), time.monotonic()
        with self.autocast(), self._uncompiled():
            length, say = self.trial.sequence_length, self.recorder.say
            evaluation = evaluate(self.model, tokens, length, at_once, say, self.world)
        self.progress.evaluation_s += time.monotonic() - started
        return evaluation

    def _facts(self) -> dict[str, Any]:
        trial, progress = self.trial, self.progress
        counts = accounting.count_parameters(trial.model)
        tokens, peak = progress.step * trial.batch_tokens, peak_memory_bytes(self.device)
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
            "timing": timing_of(trial, progress, self.recorder.recorded(), self.device, self.world.size),
            "peak_memory_bytes": peak,
            "allocated_bytes": peak if self.device.type == "cuda" else self.allocated.most,
            "device": str(self.device),
            "micro_batch": self.options.micro_batch,
            "recompute": self.options.recompute,
            "arithmetic": progress.arithmetic,
            "world_size": self.world.size,
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
    world: World = ALONE,
) -> dict[str, Any]:
    """Train ``trial`` from its newest state (if any) to the end, and evaluate it.

    On the CPU a run that was stopped and resumed gives the same bits as one that was not.

    Args:
        trial: What is trained.
        corpus: The prepared corpus of ``trial.corpus``.
        options: How it is run: device, micro-batch, checkpoints, measurements; no part of the identity.
        recorder: Who keeps the rows of metrics, and says when to stop.
        checkpoints: The folder of the trial's checkpoints; created when the first is written.
        trunk: The folder of the trial's trunk, if it has one (see ``model.identity``): where it may find its
            first steps already done, and keeps its own for others at ``options.branch_steps``.
        world: The processes that train it together, each of which calls this; rank 0's recorder counts.

    Returns:
        The result as plain JSON values: ``status`` (``completed`` or ``diverged``), ``loss`` of the test
        split and ``loss_validation`` (nats/token, None where diverged), ``loss_blocks`` and ``block_tokens``
        of the test split (None under 16 sequences too), parameter counts, FLOPs, ``wall_s`` and how it was
        run.

    Raises:
        TrainingInterruptedError: The recorder asked to stop; the state is in the newest checkpoint.
        OSError: A checkpoint cannot be written.
    """
    return TrainingRun(trial, corpus, options, recorder, checkpoints, trunk, world).run()
