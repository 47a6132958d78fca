"""How fast the device takes steps: its share of the peak, the cost of scale vectors, small trials at once."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from parts import Figures, Part
from ranks import side_by_side
from stepping import SteppedRun, drawn_corpus, options_that_fit
from workloads import CORPUS_TOKENS, OVERHEAD_ARMS, DeviceMemory, Site, trial_of

from scalevec.model.accounting import count_parameters, flops_per_token
from scalevec.model.config import RunOptions, Trial
from scalevec.model.data.corpus import Corpus
from scalevec.model.estimate import memory_of
from scalevec.model.train.devices import is_out_of_memory, model_flops_utilization, release_unused

FEWEST_ROUNDS = 3
TOKENS_PER_PARAMETER = 20
"""Of the small trials whose number in an hour is told."""


def speed_parts(site: Site) -> list[Part]:
    """A part for each size, so that one that does not fit leaves the others."""
    return [Part(f"speed-{name}", partial(speed, name=name), 120) for name in site.workloads.timed]


def overhead_parts(site: Site) -> list[Part]:
    """A part for each size at which arms are compared, and what is recomputed there."""
    return [
        Part(f"overhead-{name}-{kept}", partial(overhead, name=name, recompute=kept), 180)
        for name, kept in site.workloads.overhead
    ]


def speed(site: Site, figures: Figures, name: str) -> None:
    """Tokens per second, memory, and the share of the device's peak in bfloat16."""
    work = site.workloads
    with drawn_corpus(CORPUS_TOKENS) as corpus:
        trial = trial_of(work.timed[name], work.timed_text, corpus, precision="bfloat16")
        measured = in_turns({name: trial}, corpus, site, "none")
    for key, value in measured[name].items():
        figures.keep(key, value)


def overhead(site: Site, figures: Figures, name: str, recompute: str) -> None:
    """Time and memory of scale-vector strategies over the baseline's; their steps take turns."""
    work = site.workloads
    with drawn_corpus(CORPUS_TOKENS) as corpus:
        trials = {
            arm: trial_of(work.timed[name], work.overhead_text, corpus, arm, precision="bfloat16")
            for arm in OVERHEAD_ARMS
        }
        measured = in_turns(trials, corpus, site, recompute)
    baseline = measured["baseline"]
    for arm, of_arm in measured.items():
        ratios = {"over_baseline": of_arm["step_s"] / baseline["step_s"]}
        if baseline["peak_bytes"]:
            ratios["memory_over_baseline"] = of_arm["peak_bytes"] / baseline["peak_bytes"]
        figures.keep(arm, of_arm | ratios)


def in_turns(
    trials: Mapping[str, Trial], corpus: Corpus, site: Site, recompute: str
) -> dict[str, dict[str, Any]]:
    """The figures of each of ``trials``, which take a step each in turn, with the same micro-batch."""
    options = options_for_all(trials, site, recompute)
    while True:
        try:
            return _in_turns(trials, corpus, site, options)
        except RuntimeError as problem:
            if not is_out_of_memory(problem) or options.micro_batch == 1:
                raise
        release_unused(DeviceMemory(site.device).device)
        sequences = options.micro_batch or next(iter(trials.values())).batch_sequences
        options = replace(options, micro_batch=max(1, sequences // 2))


def options_for_all(trials: Mapping[str, Trial], site: Site, recompute: str) -> RunOptions:
    """The largest micro-batch with which any of ``trials`` fits beside what the others hold."""
    options = replace(site.options(), recompute=recompute, micro_batch=1)
    plans = [memory_of(trial, options) for trial in trials.values()]
    held = sum(plan.parameters * 2 + plan.optimizer for plan in plans[1:])  # gradients stay between steps
    device = site.local()
    room = replace(device, memory_bytes=device.memory_bytes - held)
    fitting = [options_that_fit(trial, room, recompute) for trial in trials.values()]
    of_each = [RunOptions(micro_batch=1) if fit is None else fit for fit in fitting]
    limited = [fit.micro_batch for fit in of_each if fit.micro_batch]
    return replace(options, micro_batch=min(limited, default=0))


def _in_turns(
    trials: Mapping[str, Trial], corpus: Corpus, site: Site, options: RunOptions
) -> dict[str, dict[str, Any]]:
    memory, runs, peaks = DeviceMemory(site.device), dict[str, SteppedRun](), dict[str, int]()
    for name, trial in trials.items():
        before = memory.allocated()
        runs[name] = SteppedRun(trial, corpus, options)
        runs[name].take()  # from here on the optimizer has its state
        memory.reset_peak()
        runs[name].take()
        peaks[name] = memory.peak() - before
    each = site.workloads.seconds / (1 if len(runs) == 1 else 2)
    times = _timed(runs, memory, each)
    device = site.local().name
    return {
        name: figures_of(trials[name], options, steps, peaks[name], device) for name, steps in times.items()
    }


def _timed(runs: Mapping[str, SteppedRun], memory: DeviceMemory, seconds: float) -> dict[str, list[float]]:
    """Seconds of each step, for as long as ``seconds`` for each run, three rounds at least."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    until, rounds = time.monotonic() + seconds * len(runs), 0
    while rounds < FEWEST_ROUNDS or time.monotonic() < until:
        for name, run in runs.items():
            memory.synchronize()
            began = time.perf_counter()
            run.take()
            memory.synchronize()
            times[name].append(time.perf_counter() - began)
        rounds += 1
    return times


def figures_of(
    trial: Trial, options: RunOptions, steps: list[float], peak: int, device: str
) -> dict[str, Any]:
    """Speed and memory of ``trial``, whose steps took so many seconds."""
    step_s = statistics.median(steps)
    tokens_per_s, flops = trial.batch_tokens / step_s, flops_per_token(trial.model, trial.sequence_length)
    return {
        "n_params": count_parameters(trial.model).matrices,
        "batch_tokens": trial.batch_tokens,
        "sequence_length": trial.sequence_length,
        "micro_batch": options.micro_batch,
        "recompute": options.recompute,
        "compiled": options.compiled,
        "step_s": step_s,
        "steps_s": steps,
        "tokens_per_s": tokens_per_s,
        "flops_per_s": flops * tokens_per_s,
        "mfu": model_flops_utilization(flops, tokens_per_s, trial.product_precision, device),
        "peak_bytes": peak,
        "planned_bytes": memory_of(trial, options).arrays,
    }


def small_trials(site: Site, figures: Figures) -> None:
    """Trials of small rungs, so many at once, in a process each: what all of them do together."""
    work = site.workloads
    with (
        drawn_corpus(CORPUS_TOKENS) as corpus,
        side_by_side(max(work.side_by_side), site.options()) as trials,
    ):
        for name, size in work.small.items():
            trial = trial_of(size, work.small_text, corpus)
            steps = TOKENS_PER_PARAMETER * count_parameters(trial.model).matrices / trial.batch_tokens
            alone = 0.0
            for n in work.side_by_side:
                medians = trials.median_steps(n, trial, corpus, work.seconds / 2)
                steps_per_s = sum(1 / median for median in medians)
                alone = alone or steps_per_s
                figures.keep(
                    f"{name}, {n} at once",
                    {
                        "step_s": statistics.median(medians),
                        "tokens_per_s": steps_per_s * trial.batch_tokens,
                        "trials_per_hour": 3600 * steps_per_s / steps,
                        "over_one": steps_per_s / alone,
                    },
                )
