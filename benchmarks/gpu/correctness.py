"""Whether the device computes what the CPU does, alone and with others, and goes on where it stopped."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from parts import Figures
from ranks import Meeting, trained_together
from stepping import SteppedRun, drawn_corpus
from workloads import CORPUS_TOKENS, DeviceMemory, Site, trial_of

from scalevec.model.config import RunOptions, Trial
from scalevec.model.data.corpus import Corpus
from scalevec.model.estimate import memory_of
from scalevec.model.ops import head_loss
from scalevec.model.strategies import PRESETS as STRATEGIES
from scalevec.model.train import ddp
from scalevec.model.train.devices import missing_compiler
from scalevec.model.train.evaluation import evaluate
from scalevec.model.train.loop import train
from scalevec.model.train.record import SilentRecorder, TrainingInterruptedError

ARMS = ("baseline", "unified")
TOLERANCES = {"float32": (2e-5, 1e-3), "bfloat16": (5e-3, 2e-2)}
"""By precision, of the first loss and of any later one: the largest relative difference. Later ones follow
other weights: the orders of sums differ from the first step on."""
VARIANTS: Mapping[str, tuple[str, RunOptions]] = {
    "float32": ("float32", RunOptions()),
    "float32, micro-batches": ("float32", RunOptions(micro_batch=2)),
    "float32, blocks recomputed": ("float32", RunOptions(recompute="block")),
    "bfloat16": ("bfloat16", RunOptions()),
}
"""What has to give the CPU's losses: precision and options of a run. Every path of arithmetic has a line."""


class KeptRows(SilentRecorder):
    """Keeps the rows of a run, and asks for a stop after ``stop_after`` of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__(lambda: len(self.rows) == stop_after)
        self.rows: list[dict[str, Any]] = []

    def record(self, row: Mapping[str, Any]) -> None:
        """Keep a row."""
        self.rows.append(dict(row))

    def cut_back(self, step: int) -> None:
        """Forget later rows."""
        self.rows = [row for row in self.rows if row["step"] <= step]

    def recorded(self) -> Sequence[Mapping[str, Any]]:
        """All rows."""
        return self.rows

    def replace_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep these."""
        self.rows = [dict(row) for row in rows]


def losses_of(
    trial: Trial, corpus: Corpus, options: RunOptions, stop_after: int | None = None
) -> list[float]:
    """All losses of a run, the terminal ones last; it is stopped and resumed after ``stop_after`` steps."""
    rows = KeptRows(stop_after)
    with tempfile.TemporaryDirectory(prefix="scalevec-") as folder:
        if stop_after is not None:
            with suppress(TrainingInterruptedError):
                train(trial, corpus, options, rows, Path(folder))
            resumed = KeptRows()
            resumed.replace_rows(rows.rows)
            rows = resumed
        result = train(trial, corpus, options, rows, Path(folder))
    return [row["loss"] for row in rows.rows] + [result["loss_validation"], result["loss"]]


def differences(losses: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Relative differences, one for each loss."""
    return [abs(loss - other) / abs(other) for loss, other in zip(losses, reference, strict=True)]


def judge(figures: Figures, name: str, precision: str, apart: Sequence[float]) -> None:
    """Fail where losses are farther ``apart`` than the precision explains."""
    first, later = TOLERANCES[precision]
    figures.check(apart[0] <= first, f"{name}: the first loss is {apart[0]:.2g} off, over {first:g}")
    figures.check(max(apart) <= later, f"{name}: a loss is {max(apart):.2g} off, over {later:g}")


def head(site: Site, figures: Figures) -> None:
    """The head's loss and gradients with a compiled softmax against those without; seconds of each."""
    rows, width, classes = site.workloads.head
    memory, random = DeviceMemory(site.device), torch.Generator().manual_seed(0)
    targets = torch.randint(classes, (rows,), generator=random).to(memory.device)
    drawn = [torch.randn(n, width, generator=random) / width**0.5 for n in (rows, classes)]
    for precision, (_, close) in TOLERANCES.items():
        losses_by_way = {}
        for way in ("plain", "fused"):
            hidden, weight = (
                tensor.to(memory.device, getattr(torch, precision), copy=True).requires_grad_()
                for tensor in drawn
            )
            seconds = []
            for _ in range(4):  # of which the first compiles
                hidden.grad = weight.grad = None
                memory.synchronize()
                began = time.perf_counter()
                loss = head_loss(hidden, weight, targets, fused=way == "fused")
                loss.backward()
                memory.synchronize()
                seconds.append(time.perf_counter() - began)
            figures.keep(f"{precision}, {way}", {"seconds": seconds, "loss": loss.item()})
            losses_by_way[way] = (loss.detach()[None], hidden.grad, weight.grad)
        for name, ours, theirs in zip(
            ("loss", "hidden", "weight"), losses_by_way["fused"], losses_by_way["plain"], strict=True
        ):
            apart = ((ours - theirs).float().norm() / theirs.float().norm()).item()
            figures.keep(f"{precision}, {name}", apart)
            figures.check(apart <= close, f"{precision}: the {name} is {apart:.2g} off, over {close:g}")


def losses(site: Site, figures: Figures) -> None:
    """The losses of some steps in every variant, against the CPU's in float32."""
    with drawn_corpus(CORPUS_TOKENS) as corpus:
        for name, arm, trial in checked_trials(site, corpus):
            reference = losses_of(trial, corpus, RunOptions())
            for variant, (precision, options) in VARIANTS.items():
                label = f"{name}, {arm}, {variant}"
                there = replace(options, device=site.device)
                run = losses_of(replace(trial, precision=precision), corpus, there)
                apart = differences(run, reference)
                figures.keep(label, {"first": apart[0], "largest": max(apart), "losses": run})
                judge(figures, label, precision, apart)


def checked_trials(site: Site, corpus: Corpus) -> list[tuple[str, str, Trial]]:
    """Size, arm and trial of those whose losses are compared."""
    work = site.workloads
    return [
        (name, arm, trial_of(size, work.checked_text, corpus, arm, steps=work.steps))
        for name, size in work.checked.items()
        for arm in ARMS
    ]


def compiled_blocks(site: Site, figures: Figures) -> None:
    """The losses with compiled blocks, against those without on the same device."""
    if lacking := missing_compiler(site.device):
        figures.check(False, f"blocks cannot be compiled: this machine lacks {lacking}")
        return
    with drawn_corpus(CORPUS_TOKENS) as corpus:
        for name, arm, trial in checked_trials(site, corpus):
            for precision in TOLERANCES:
                if (name, arm, precision) in site.workloads.compiled:
                    plain = RunOptions(device=site.device)
                    ways = (plain, replace(plain, compiled=True))
                    eager, run = (losses_of(replace(trial, precision=precision), corpus, way) for way in ways)
                    apart, label = differences(run, eager), f"{name}, {arm}, {precision}"
                    figures.keep(label, {"first": apart[0], "largest": max(apart)})
                    judge(figures, label, precision, apart)


def strategies(site: Site, figures: Figures) -> None:
    """Loss and gradient norm in two steps of every preset, in both architectures, against the CPU's."""
    work = site.workloads
    with drawn_corpus(CORPUS_TOKENS) as corpus:
        for architecture in ("llama", "gemma"):
            for arm in STRATEGIES:
                trial = trial_of(
                    work.checked["dense"], work.checked_text, corpus, arm, architecture=architecture
                )
                reference = _first_steps(trial, corpus, "cpu")
                apart = differences(_first_steps(trial, corpus, site.device), reference)
                figures.keep(f"{architecture}, {arm}", dict(zip(("loss", "gradient"), apart, strict=False)))
                judge(figures, f"{architecture}, {arm}", "float32", apart)


def _first_steps(trial: Trial, corpus: Corpus, device: str) -> list[float]:
    run = SteppedRun(trial, corpus, RunOptions(device=device))
    rows = run.take(2)
    return [row[name] for row in rows for name in ("loss", "gradient_norm")]


def resume(site: Site, figures: Figures) -> None:
    """A run that was stopped half way and resumed, against one that was not; how far two such differ."""
    here = site.options()
    with drawn_corpus(CORPUS_TOKENS) as corpus:
        for name, arm, trial in checked_trials(site, corpus):
            for precision in TOLERANCES:
                in_precision = replace(trial, precision=precision)
                whole, again = (losses_of(in_precision, corpus, here) for _ in range(2))
                resumed = losses_of(in_precision, corpus, here, stop_after=trial.steps // 2)
                apart, label = differences(resumed, whole), f"{name}, {arm}, {precision}"
                figures.keep(label, {"resumed": max(apart), "repeated": max(differences(again, whole))})
                judge(figures, label, precision, apart)
                if site.device == "cpu":
                    figures.check(resumed == whole, f"{label}: resumed with other bits")


def processes(site: Site, figures: Figures) -> None:
    """Processes that share a batch, on the one device: two that meet over gloo, or one over NCCL."""
    _together(site, figures, Meeting(2, "gloo"))
    if site.device == "cuda":
        _together(site, figures, Meeting(1, ddp.BACKENDS["cuda"]))


def sharded_processes(site: Site, figures: Figures) -> None:
    """The same, each process with its share of the parameters.

    On a card it is one process over NCCL: NCCL refuses two on one card, and gloo crashes in it (torch 2.11).
    """
    on_cpu = site.device == "cpu"
    _together(site, figures, Meeting(2 if on_cpu else 1, ddp.BACKENDS[site.device], shard=True))


def _together(site: Site, figures: Figures, meeting: Meeting) -> None:
    with drawn_corpus(CORPUS_TOKENS) as corpus:
        for name, arm, trial in checked_trials(site, corpus):
            if arm == "baseline":
                continue  # its vectors are a case of unified's
            alone, together = (
                trained_together(how, trial, corpus, site.options()) for how in (Meeting(), meeting)
            )
            apart, label = differences(together, alone), f"{name}, {arm}, {meeting.size} by {meeting.backend}"
            figures.keep(label, {"first": apart[0], "largest": max(apart)})
            judge(figures, label, "float32", apart)


def evaluation_memory(site: Site, figures: Figures) -> None:
    """What an evaluation takes, and is planned to; that it goes on where its batch does not fit."""
    work, memory = site.workloads, DeviceMemory(site.device)
    with drawn_corpus(CORPUS_TOKENS) as corpus:
        size = work.timed[work.evaluated]
        trial = trial_of(size, work.timed_text, corpus, "unified", precision="bfloat16")
        options = replace(site.options(), micro_batch=4)
        run = SteppedRun(trial, corpus, options)
        memory.reset_peak()
        run.take()
        training = memory.peak()
        run.optimizer.zero_grad(set_to_none=True)
        held, at_once = memory.allocated(), options.evaluated_at_once(trial)
        loss, peak = _evaluated(run, memory, at_once, [])
        planned = memory_of(trial, options)
        figures.keep("training_bytes", training)
        figures.keep("evaluation_bytes", {"measured": peak - held, "planned": planned.evaluation})
        figures.check(peak <= max(training, 1), "an evaluation takes more memory than a training step")
        # Less than a batch takes, more than two of its sequences take.
        memory.limit(held + 0.75 * (peak - held) if memory.counts else None)
        messages: list[str] = []
        cut, _ = _evaluated(run, memory, 16 * at_once, messages)
        memory.limit(None)
        figures.keep("with_little_memory", {"loss": cut, "whole": loss, "messages": messages})
        figures.check(abs(cut - loss) <= 1e-3 * loss, "an evaluation in smaller batches has another loss")
        figures.check(
            bool(messages) == memory.counts, "the limit on memory did not cut the evaluation's batch"
        )


def _evaluated(run: SteppedRun, memory: DeviceMemory, at_once: int, messages: list[str]) -> tuple[float, int]:
    """The loss of 64 sequences of the training split, so many at once, and the most memory meanwhile."""
    length = run.trial.sequence_length
    tokens = run.corpus.split("train")[: 64 * length + 1]
    memory.reset_peak()
    with run.autocast(), torch.inference_mode():
        loss = evaluate(run.model, tokens, length, at_once, messages.append).loss
    return loss, memory.peak()
