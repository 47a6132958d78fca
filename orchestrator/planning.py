"""The plan of a sweep: every trial with its cost, before anything is spent."""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from model.accounting import count_parameters
from model.identity import trial_id
from orchestrator.carried import RATES as CHECKED_RATES
from orchestrator.corpora import NOT_PREPARED
from orchestrator.errors import Refused
from orchestrator.estimates import FLOPS_PER_S, H100_SHARE, cost
from orchestrator.jobs import Request
from orchestrator.profiles import Profile
from orchestrator.progress import duration
from orchestrator.sweep_run import COMPARISON, TUNING, Member
from orchestrator.trunk_savings import DONE, add_savings, independent, savings_text, warmup_hint
from results.run_directory import RunDirectory, trial_ids
from sweeps import epochs

if TYPE_CHECKING:
    from analysis import NoiseFigure
    from analysis.power import PowerAnalysis
    from model.config import RunOptions, Trial
    from orchestrator.sweep_run import SweepRun
    from sweeps import CorpusFacts

Row = dict[str, Any]
CARD_BYTES = 80 * 10**9
"""The memory of an H100."""
WEEK_S = 7 * 24 * 3600
PIPED_WIDTH = 160
"""Columns of the table where no terminal says how wide it is."""


def planned(run: "SweepRun") -> list[Row]:
    """One row a trial; ``trial_id`` is None where a tuned field is still to be chosen."""
    state_of = _states(run)
    size_of = _sizes(run)
    members = list(named(run))
    rows = [
        {**_row(member, name, state_of(name) if name else "pending"), **size_of(member)}
        for member, name in members
    ]
    add_savings(rows, [member.trial for member, _ in members])
    return rows


def named(run: "SweepRun") -> Iterator[tuple[Member, str | None]]:
    """Every trial of the sweep with its id; None where a tuned field is still to be chosen."""
    for member in run.members():
        yield member, trial_id(member.trial)
    for cell in run.cells:
        if run.tuner.is_open(cell):
            for seed in cell.seeds:
                yield Member(cell, COMPARISON, cell.trial(seed), "to be tuned"), None
    for cell in run.tuner.to_check:
        if run.tuner.is_open(cell) and run.sweep.tune is not None:
            for seed in run.sweep.tune.seeds * CHECKED_RATES:
                yield Member(cell, TUNING, cell.trial(seed), "to be tuned"), None


def _states(run: "SweepRun") -> Callable[[str], str]:
    """Tells a trial's state; what has no run directory is found by one look at the folder of all."""
    existing = set(trial_ids(run.runs_dir))

    def state(name: str) -> str:
        return RunDirectory.of(run.runs_dir, name).state().state if name in existing else "pending"

    return state


def _on_machine(run: "SweepRun", rung: str) -> tuple["RunOptions", Request]:
    """How the trials of a rung run, and what each asks for."""
    cell = next(cell for cell in run.cells if cell.rung == rung)
    return run.options(Member(cell, COMPARISON, cell.template, "")), run.request(rung)


def _row(member: Member, name: str | None, state: str) -> Row:
    """What tells a trial from the others of its cell."""
    trial = member.trial
    return {
        "trial_id": name,
        "stage": member.stage,
        "arm": member.cell.arm,
        "rung": member.cell.rung,
        "seed": trial.seed,
        "learning_rate": trial.optimizer.learning_rate if name else None,
        "lr_status": member.lr_status,
        "state": state,
    }


def _sizes(run: "SweepRun") -> Callable[[Member], Row]:
    """Tells how large a trial is: reckoned once for all of a cell that have the same batches."""
    on_machine = lru_cache(lambda rung: _on_machine(run, rung))
    found: dict[tuple[int, ...], Row] = {}

    def of(member: Member) -> Row:
        trial = member.trial
        key = (id(member.cell), trial.tokens, trial.batch_tokens, trial.sequence_length)
        if key not in found:
            found[key] = _size(run, trial, *on_machine(member.cell.rung))
        return found[key]

    return of


def _size(run: "SweepRun", trial: "Trial", options: "RunOptions", request: Request) -> Row:
    counts = count_parameters(trial.model)
    return {
        "n_params": counts.matrices,
        "n_params_total": counts.total,
        "n_params_active": counts.active,
        "n_params_scale_vectors": counts.scale_vectors,
        "n_tokens": trial.tokens,
        "epochs": epochs(trial, run.corpus_facts),
        "device": options.device,
        "cpus": request.cpus,
        "gpus": request.gpus,
        "memory_gb": request.memory_gb,
        **vars(cost(trial, options)),
    }


def not_done(trials: Sequence[Row]) -> list[Row]:
    """The rows of what is not done yet, each trial once."""
    left = {row["trial_id"] or place: row for place, row in enumerate(trials) if row["state"] not in DONE}
    return list(left.values())


def gpu_hours(trials: Sequence[Row]) -> float:
    """GPU hours of what is not done yet: GPUs times the estimated time, each trial and trunk once."""
    seconds = (row["gpus"] * (row["seconds"] - row["seconds_from_trunk"]) for row in not_done(trials))
    return float(sum(seconds)) / 3600


def bytes_to_come(trials: Sequence[Row]) -> int:
    """Bytes that what is not done yet will leave on the disk, with the states of trunks meanwhile."""
    return sum(row["disk_bytes"] + row["trunk_bytes"] for row in not_done(trials))


def write_json(trials: Sequence[Row], stream: TextIO) -> None:
    """A JSON list with a line for each trial."""
    for place, row in enumerate(trials):
        stream.write(("[\n " if place == 0 else ",\n ") + json.dumps(row))
    stream.write("\n]\n" if trials else "[]\n")


def show(
    run: "SweepRun",
    trials: Sequence[Row],
    jobs: int,
    noise: "NoiseFigure | None" = None,
    *,
    every_trial: bool,
) -> None:
    """Print the plan: a line for each stage, rung and arm (or each trial), then the sum."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("stage", "rung", "arm"):
        table.add_column(name, no_wrap=True)
    for name in ("trials", "done", "N", "vectors", "tokens", "epochs", "FLOPs", "memory", "time each"):
        table.add_column(name, justify="right", no_wrap=True)
    for rows in [[row] for row in trials] if every_trial else _grouped(trials):
        table.add_row(*_cells(rows))
    console.print(table)
    console.print(_total(run, trials, jobs), highlight=False, soft_wrap=True)
    if len(run.sweep.arms) > 1:
        console.print(detectable(run, trials, noise), highlight=False, soft_wrap=True, markup=False)


def noise_figure(sd: float | None, pilot: str | None, reference: str, runs_dir: Path) -> "NoiseFigure | None":
    """The noise that was given, or that of a pilot's pairs; None for what ``analysis`` takes for typical.

    Raises :class:`Refused` for both at once and for an sd that is none, ``DataError`` for a pilot without
    a repeated pair.
    """
    if sd is None and pilot is None:
        return None
    if sd is not None and pilot is not None:
        raise Refused("--noise and --pilot both name the noise; allowed: one of them")
    import analysis

    if pilot is not None:
        from orchestrator.sources import open_source

        return analysis.pilot_noise(open_source(pilot, runs_dir).rows, reference)
    if sd is None or not 0 < sd < float("inf"):
        raise Refused(f"--noise is {sd}; allowed: a number of nats a token above zero")
    from analysis.power import TYPICAL

    return analysis.NoiseFigure(sd, TYPICAL.slope, "as given; the slope is typical")


def detectable(run: "SweepRun", trials: Sequence[Row], noise: "NoiseFigure | None" = None) -> str:
    """What difference the comparison can find, as text, or why that cannot be said."""
    from analysis import DataError

    try:
        return power(run, trials, noise).text
    except DataError as problem:
        return f"what this design can detect: {problem}"


def power(run: "SweepRun", trials: Sequence[Row], noise: "NoiseFigure | None" = None) -> "PowerAnalysis":
    """What difference the comparison can find, at ``noise`` or what ``analysis`` takes for typical.

    Token budgets that share a trunk are not independent: of them the largest counts. Raises
    :class:`Refused` for a sweep of one arm, ``DataError`` for a design of which nothing can be said.
    """
    if len(run.sweep.arms) < 2:
        raise Refused(
            f"sweep {run.sweep.name} has one arm; there is nothing that its comparison could detect"
        )
    import analysis
    from analysis.power import TYPICAL

    seeds: dict[tuple[str, int, int], set[int]] = {}
    for row in independent(trials):
        if row["stage"] == COMPARISON and row["arm"] == run.sweep.reference:
            seeds.setdefault((row["rung"], row["n_params"], row["n_tokens"]), set()).add(row["seed"])
    rungs = [analysis.PlannedRung(*place, seeds=len(found)) for place, found in seeds.items()]
    return analysis.detectable(rungs, noise or TYPICAL, n_arms=len(run.sweep.arms) - 1)


def _grouped(trials: Sequence[Row]) -> list[list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in trials:
        groups.setdefault((row["stage"], row["rung"], row["arm"], row["n_tokens"]), []).append(row)
    return list(groups.values())


def _cells(rows: Sequence[Row]) -> tuple[str, ...]:
    first = rows[0]
    done = sum(row["state"] in DONE for row in rows)
    return (
        first["stage"],
        first["rung"],
        first["arm"],
        str(len(rows)),
        str(done),
        f"{first['n_params']:,}",
        f"{first['n_params_scale_vectors']:,}",
        f"{first['n_tokens']:,}",
        f"{first['epochs']:.2f}",
        f"{first['flops']:.2g}",
        f"{max(row['memory_bytes'] for row in rows) / 1e6:,.0f} MB",
        duration(first["seconds"]),
    )


def _total(run: "SweepRun", trials: Sequence[Row], jobs: int) -> str:
    left = [row for row in trials if row["state"] not in DONE]
    flops = sum(row["flops"] - row["flops_from_trunk"] for row in left)
    seconds = sum(row["seconds"] - row["seconds_from_trunk"] for row in left)
    megabytes = sum(row["disk_bytes"] for row in trials) / 1e6
    files = sum(row["disk_files"] for row in trials)
    most = max((row["epochs"] for row in trials), default=0.0)
    lines = [
        f"{len(trials)} trials, {len(trials) - len(left)} of them done; {flops:.3g} FLOPs and about "
        f"{duration(seconds / jobs)} left with {jobs} at a time (an estimate; a run corrects it)",
        f"disk: {megabytes:,.1f} MB of results in {files:,} files and folders with keep: {run.sweep.keep}",
        _corpus(run.corpus_facts, most),
    ]
    lines += [text for text in (savings_text(trials), warmup_hint(run.cells)) if text]
    if hours := gpu_hours(trials):
        rate = f"at {FLOPS_PER_S['cuda']:.3g} FLOPs a second, {H100_SHARE:.0%} of an H100's bf16 peak"
        lines.append(f"{hours:,.3g} H100-hours left {rate}{_beyond(hours, run.max_gpu_hours)}")
    lines += _asked_for(run)
    lines += _long_ones(left) + _large_ones(left)
    if most > 1:
        lines.append("warning: some trials see text more than once; their losses are not those of fresh text")
    if run.sweep.measure:
        what, every = " and ".join(run.sweep.measure.what), run.sweep.measure.every
        lines.append(f"{what} every {every} steps take time that is not in the estimate")
    if run.sweep.tune:
        lines.append(
            f"tuning may extend its grid by {run.sweep.tune.extend} steps; comparison follows its choices"
        )
    return "\n".join(lines)


def _corpus(facts: "CorpusFacts", most_epochs: float) -> str:
    if facts.fingerprint == NOT_PREPARED:
        return "corpus: not looked at; epochs are not counted, and no trial has its identity yet"
    return (
        f"corpus {facts.fingerprint[:12]}: {facts.training_tokens:,} training tokens, "
        f"at most {most_epochs:.2f} epochs"
    )


def _asked_for(run: "SweepRun") -> list[str]:
    """What a profile makes of the sweep's resources: a line for each kind of machine."""
    if run.profile == Profile():
        return []
    rungs: defaultdict[str, list[str]] = defaultdict(list)
    for rung in dict.fromkeys(cell.rung for cell in run.cells):
        rungs[_machine(run, rung)].append(rung)
    return [f"each trial of {', '.join(names)} asks for {machine}" for machine, names in rungs.items()]


def _machine(run: "SweepRun", rung: str) -> str:
    request, partition = run.request(rung), run.profile.for_rung(rung).partition
    memory = f", {request.memory_gb:g} GB" if request.memory_gb else ""
    where = f" in partition {partition}" if partition else ""
    cpus, gpus = (f"{n:g} {of}{'s' * (n != 1)}" for n, of in ((request.cpus, "CPU"), (request.gpus, "GPU")))
    return f"{cpus}, {gpus}{memory}{where}"


def _long_ones(left: Sequence[Row]) -> list[str]:
    """A warning of trials that one GPU would train for more than a week."""
    long = [row for row in left if 0 < row["gpus"] <= 1 and row["seconds"] > WEEK_S]
    if not long:
        return []
    rungs = ", ".join(dict.fromkeys(row["rung"] for row in long))
    longest = max(row["seconds"] for row in long)
    return [
        f"warning: {len(long)} trials ({rungs}) would each keep one GPU busy for more than a week, "
        f"the longest for {duration(longest)}"
    ]


def _large_ones(left: Sequence[Row]) -> list[str]:
    """A warning of trials that would fill the memory of a usual card."""
    large = [row for row in left if 0 < row["gpus"] <= 1 and row["memory_bytes"] > CARD_BYTES]
    if not large:
        return []
    rungs = ", ".join(dict.fromkeys(row["rung"] for row in large))
    most = max(row["memory_bytes"] for row in large)
    return [
        f"warning: {len(large)} trials ({rungs}) would need up to {most / 1e9:,.0f} GB, more than the "
        f"{CARD_BYTES / 1e9:.0f} GB of an H100: a smaller micro_batch needs less, a larger card has more"
    ]


def _beyond(hours: float, limit: float | None) -> str:
    if limit is None or hours <= limit:
        return ""
    return f": more than max_gpu_hours, {limit:g}; nothing will be submitted"
