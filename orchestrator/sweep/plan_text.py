"""The plan of a sweep as text: a line per stage, rung, setting and arm, the sum, and what could surprise."""

import math
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.costs.estimates import ASSUMED, ASSUMED_FLOPS_PER_S, H100_SHARE, UNKNOWN_TIME
from scalevec.orchestrator.costs.trunk_savings import DONE, savings_text
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.progress import aligned, counted, duration
from scalevec.orchestrator.sweep.corpus_of_sweep import NOT_PREPARED
from scalevec.orchestrator.sweep.foreign_plan import UNKNOWN_COLUMNS, foreign_lines
from scalevec.orchestrator.sweep.plan_jobs import (
    QueuedRung,
    jobs_table,
    limit_warnings,
    most_at_a_time,
    queued_rungs,
    seconds_left,
)
from scalevec.orchestrator.sweep.planning import Row, gpu_hours, power
from scalevec.orchestrator.tuning.choices import place_text
from scalevec.orchestrator.tuning.larger_rungs import n_points

if TYPE_CHECKING:
    from scalevec.analysis import NoiseFigure
    from scalevec.orchestrator.attempts.jobs import ResourceRequest
    from scalevec.orchestrator.sweep.sweep_run import SweepRun
    from scalevec.sweeps.expansion.trials import CorpusFacts

WEEK_S = 7 * 24 * 3600
LONGEST_ARMS = 24
"""Letters of the names of arms that stand in one row of a terminal."""
_COUNTS = ("trials", "done")
_BUDGETS = ("tokens_per_parameter", "tokens_budget", "flops_budget")
_SPARE = ("parameters", "vectors", "epochs", "done", "memory", "N", "FLOPs", "tokens", "each", "D/N")
"""Columns that a narrow terminal does without, the first of them first."""


def plan_text(
    run: "SweepRun",
    trials: Sequence[Row],
    jobs: int,
    noise: "NoiseFigure | None" = None,
    *,
    every_trial: bool = False,
    width: int | None = None,
    in_queue: bool = False,
) -> str:
    """Return a line per stage, rung, setting and arm (or per trial), in the order in which they run; the sum.

    Where trials run ``in_queue`` of a cluster, the jobs that they become follow.

    A ``width`` in characters shortens the table by whole columns and breaks the text between words.
    """
    ordered = sorted(trials, key=_turn)
    groups = [[row] for row in ordered] if every_trial else _grouped(ordered)
    not_prepared = ("epochs",) if run.corpus_facts.fingerprint == NOT_PREPARED else ()
    unknown: tuple[str, ...] = not_prepared if run.sweep.trainer is None else UNKNOWN_COLUMNS
    unknown += ("each",) if all(row["rate"] == UNKNOWN_TIME for row in trials) else ()
    lines = [*_table(groups, width, unknown), *_summary(run, trials, jobs, in_queue=in_queue)]
    if len(run.sweep.arms) > 1:
        first, *more = detectable(run, trials, noise).split("\n")
        lines += [first, *more] if width is None else [f"{first}; more: --power"]
    lines += _predictions(run)
    if width is None:
        return "\n".join(lines)
    return "\n".join(textwrap.fill(line, width, subsequent_indent="  ", **_WORDS) for line in lines)


_WORDS: dict[str, Any] = {
    "break_long_words": False,
    "break_on_hyphens": False,
    "drop_whitespace": True,
    "replace_whitespace": False,
}


def _turn(row: Row) -> tuple[bool, float]:
    """Tuning first; in a stage the longest trials first, as the scheduler takes them."""
    return row["stage"] != "tuning", -float(f"{row['seconds']:.2g}")


def _grouped(trials: Sequence[Row]) -> list[list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in trials:
        key = (row["stage"], row["rung"], row["arm"], row["n_tokens"], sorted(row["setting"].items()))
        groups.setdefault(repr(key), []).append(row)
    return list(groups.values())


def _table(groups: Sequence[Sequence[Row]], width: int | None, unknown: Sequence[str]) -> list[str]:
    """The lines of the table, without the columns ``unknown``, and of ``_SPARE`` those beyond ``width``."""
    columns: dict[str, Callable[[Sequence[Row]], str]] = {
        "stage": lambda rows: str(rows[0]["stage"]),
        "rung": lambda rows: str(rows[0]["rung"]),
        **_setting_columns(groups),
        "arm": lambda rows: str(rows[0]["arm"]),
        "trials": lambda rows: str(len(rows)),
        "done": lambda rows: str(sum(row["state"] in DONE for row in rows)),
        "parameters": lambda rows: _parameters(rows[0]),
        "N": lambda rows: short(rows[0]["n_params"]),
        "vectors": lambda rows: short(rows[0]["n_params_scale_vectors"]),
        "tokens": lambda rows: short(rows[0]["n_tokens"]),
        "D/N": lambda rows: f"{rows[0]['tokens_per_parameter']:.3g}",
        "epochs": lambda rows: f"{rows[0]['epochs']:.2f}",
        "FLOPs": lambda rows: f"{rows[0]['flops']:.1e}".replace("e+", "e"),
        "memory": lambda rows: f"{max(row['memory_bytes'] for row in rows) / 1e6:,.0f} MB",
        "each": lambda rows: duration(rows[0]["seconds"]),
    }
    cells = {name: [name, *map(cell, groups)] for name, cell in columns.items() if name not in unknown}
    spare = list(_SPARE)
    while True:
        rows = list(zip(*cells.values(), strict=True))
        rows = rows if width is None else _merged(list(cells), rows)
        if width is None or _width(rows) <= width or not spare:
            break
        cells.pop(spare.pop(0), None)
    words = [at for at, name in enumerate(cells) if name not in ("trials", *_SPARE)]
    return list(aligned(rows, to_the_left=words))


def _merged(names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """``rows`` (the headings first), where those that differ in their arm alone are one."""
    alike: defaultdict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in rows[1:]:
        of_row = dict(zip(names, row, strict=True))
        key = tuple(value for name, value in of_row.items() if name not in ("arm", "trials", "done"))
        alike[key].append(of_row)
    merged = [rows[0]]
    for of_arms in alike.values():
        arms = ", ".join(row["arm"] for row in of_arms)
        arms = arms if len(arms) <= LONGEST_ARMS else f"{len(of_arms)} arms"
        sums = {name: str(sum(int(row[name]) for row in of_arms)) for name in names if name in _COUNTS}
        merged.append(tuple((of_arms[0] | {"arm": arms} | sums).values()))
    return merged


def _parameters(row: Row) -> str:
    """All of them, to the last one; of a mixture also those that a token passes."""
    total, active = row["n_params_total"], row["n_params_active"]
    return f"{total:,}" if total == active else f"{total:,} ({active:,} active)"


def _setting_columns(groups: Sequence[Sequence[Row]]) -> dict[str, Callable[[Sequence[Row]], str]]:
    """A column for each further field of the setting (optimizer, grid fields) that takes several values."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    for rows in groups:
        for name, value in rows[0]["setting"].items():
            values[name].add(str(value))

    def column(name: str) -> Callable[[Sequence[Row]], str]:
        return lambda rows: str(rows[0]["setting"].get(name, ""))

    return {name: column(name) for name in values if len(values[name]) > 1 and name not in _BUDGETS}


def _width(rows: Sequence[tuple[str, ...]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2


def short(number: float) -> str:
    """Return a count with three digits: ``401k``, ``1.25M``."""
    for unit in ("", "k", "M", "G", "T"):
        if round(number, 1) < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}P"


def detectable(run: "SweepRun", trials: Sequence[Row], noise: "NoiseFigure | None" = None) -> str:
    """What difference the comparison can find, as text, or why that cannot be said."""
    from scalevec.analysis import DataError

    try:
        return power(run, trials, noise).text
    except DataError as problem:
        return f"what this design can detect: {problem}"


def _predictions(run: "SweepRun") -> list[str]:
    """What the sweep predicts, as one line."""
    from scalevec.analysis.comparison.predictions import words_of

    predictions = run.sweep.compare.predictions(run.sweep.reference)
    shown = "; ".join(map(words_of, predictions))
    return [f"predicted, and kept when the sweep first runs: {shown}"] if shown else []


def _summary(run: "SweepRun", trials: Sequence[Row], jobs: int, *, in_queue: bool) -> list[str]:
    queued = queued_rungs(run, trials) if in_queue else []
    left = [row for row in trials if row["state"] not in DONE]
    flops = sum(row["flops"] - row["flops_from_trunk"] for row in left)
    seconds = sum(row["seconds"] - row["seconds_from_trunk"] for row in left)
    megabytes = sum(row["disk_bytes"] for row in trials) / 1e6
    files = sum(row["disk_files"] for row in trials)
    most = max((row["epochs"] or 0.0 for row in trials), default=0.0)
    time = f"about {duration(seconds / jobs)} left with {jobs} at a time (an estimate; a run corrects it)"
    if any(row["rate"] == UNKNOWN_TIME for row in left):
        time = "an unknown time left"
    if in_queue:
        at_a_time = counted(most_at_a_time(queued), "job")
        time = (
            f"about {duration(seconds_left(queued))} left with {at_a_time} at a time, without waits in "
            "the queue (an estimate)"
        )
    lines = [
        f"{counted(len(trials), 'trial')}, {len(trials) - len(left)} of them done; "
        f"{flops:.3g} FLOPs and {time}",
        f"disk: {megabytes:,.1f} MB of results in {files:,} files and folders with keep: {_kept(run)}",
        *(_corpus(run.corpus_facts, most) if run.sweep.trainer is None else foreign_lines(run, left)),
    ]
    lines += savings_text(trials)
    if hours := gpu_hours(trials):
        tuning = gpu_hours([row for row in trials if row["stage"] == "tuning"])
        part = f", {tuning:,.3g} of them to tune" if tuning else ""
        lines.append(f"{_gpu_hours(hours, left)}{part}{_beyond(hours, run.max_gpu_hours)}")
    lines += _rates(left) if run.sweep.trainer is None else ()
    lines += _asked_for(run)
    lines += _jobs(queued)
    lines += [*_recomputing(left), *_compiled(run)]
    lines += _beyond_one_device(left)
    if most > 1 and run.corpus_facts.fingerprint != NOT_PREPARED:
        lines.append("warning: some trials see text more than once; their losses are not those of fresh text")
    if run.sweep.measure:
        what, every = " and ".join(run.sweep.measure.what), run.sweep.measure.every
        lines.append(f"{what} every {every} steps take time that is not in the estimate")
    if run.sweep.tune:
        lines.append(
            f"tuning may extend its grid by {run.sweep.tune.extend} steps; comparison follows its choices"
        )
        if run.sweep.tune.share:
            lines.append(
                f"what is tuned, is tuned for {run.sweep.reference} alone; all arms share its values"
            )
        lines += _starts_small(run)
    return lines


def _starts_small(run: "SweepRun") -> Iterator[str]:
    """Yield what is saved where larger rungs start around what the smaller ones predict."""
    for group in run.tuner.waiting:
        trials = sum(len(cell.tune_seeds) for cell in group.cells)
        least, whole = (n * trials for n in (n_points(group.grid), math.prod(map(len, group.grid.values()))))
        yield (
            f"tuning at {place_text(group.cells[0])} waits for the smaller rungs and starts with {least} "
            f"trials around what they predict; the whole grid has {whole}"
        )


def _gpu_hours(hours: float, left: Sequence[Row]) -> str:
    if any(row["rate"] == ASSUMED and row["gpus"] for row in left):
        rate = f"{ASSUMED_FLOPS_PER_S['cuda']:.3g} FLOPs per second, {H100_SHARE:.0%} of an H100's bf16 peak"
        return f"{hours:,.3g} H100-hours left at {rate}"
    return f"{hours:,.3g} GPU-hours left"


def _rates(left: Sequence[Row]) -> Iterator[str]:
    """Yield where the times come from; of assumed rates of GPUs another line speaks."""
    for words in dict.fromkeys(row["rate"] for row in left):
        rows = [row for row in left if row["rate"] == words]
        if words != ASSUMED:
            yield f"times: {words}"
        elif any(row["device"] == "cpu" for row in rows):
            rate = f"{ASSUMED_FLOPS_PER_S['cpu']:.2g} FLOPs per second"
            yield f"times are reckoned at {rate}, assumed until trials of this sweep have finished"


def _kept(run: "SweepRun") -> str:
    """What is kept of checkpoints, by rung where rungs differ."""
    by_rung = {cell.rung: run.sweep.keep_for(cell.rung) for cell in run.cells}
    if len(set(by_rung.values())) == 1:
        return next(iter(by_rung.values()))
    return ", ".join(f"{kept} at {rung}" for rung, kept in by_rung.items() if kept != "none")


def _corpus(facts: "CorpusFacts", most_epochs: float) -> Iterator[str]:
    if facts.fingerprint == NOT_PREPARED:
        yield "corpus not prepared: epochs and trial ids are unknown"
        return
    yield (
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


def _jobs(queued: Sequence[QueuedRung]) -> Iterator[str]:
    """Yield what the queue is given: a table by rung, and time limits that are too short."""
    if queued:
        yield from aligned(jobs_table(queued), to_the_left=(0, 1))
    yield from (f"warning: {warning}" for warning in limit_warnings(queued))


def _machine(run: "SweepRun", rung: str) -> str:
    request, partition = run.request(rung), run.profile.for_rung(rung).partition
    memory = f", {request.memory_gb_of_node:g} GB" if request.memory_gb_of_node else ""
    where = f" in partition {partition}" if partition else ""
    counted_of = ((request.cpus_of_node, "CPU"), (request.gpus, "GPU"))
    cpus, gpus = (f"{n:g} {of}{'s' * (n != 1)}" for n, of in counted_of)
    machines = f" on each of {request.nodes} machines" if request.nodes > 1 else ""
    return f"{cpus}, {gpus}{memory}{machines}{where}{_in_processes(request)}"


def _in_processes(request: "ResourceRequest") -> str:
    if request.world_size == 1:
        return ""
    return f", for {request.world_size} processes{' that share out the parameters' if request.shard else ''}"


def _beyond_one_device(left: Sequence[Row]) -> Iterator[str]:
    """Yield a warning of trials too long (more than a week) or too large for the devices of each."""
    if long := [row for row in left if row["seconds"] > WEEK_S]:
        each = (
            f"up to {most} devices" if (most := max(row["processes"] for row in long)) > 1 else "one device"
        )
        yield (
            f"warning: {_with_rungs(long)} would each keep {each} busy for more than a week, "
            f"the longest for {duration(max(row['seconds'] for row in long))}"
        )
    for rung, rows in _by_rung([row for row in left if row["no_room"]]).items():
        largest = max(rows, key=lambda row: row["memory_bytes"])
        yield f"warning: {counted(len(rows), 'trial')} of rung {rung} would not fit: {largest['no_room']}"


def _by_rung(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["rung"]].append(row)
    return groups


def _recomputing(left: Sequence[Row]) -> Iterator[str]:
    """Yield which rungs go forward through their blocks again."""
    if again := [row for row in left if row["recompute"] == "block"]:
        yield (
            f"recompute: block for {_with_rungs(again)}, as asked or since they would not fit without: a "
            "third more time, which is in the estimate (a smaller micro_batch may do without)"
        )


def _compiled(run: "SweepRun") -> Iterator[str]:
    """Yield which rungs are trained with compiled blocks."""
    rungs = dict.fromkeys(cell.rung for cell in run.cells)
    if compiled := [rung for rung in rungs if run.options(rung).compiled]:
        yield f"blocks are compiled: {', '.join(compiled)}"


def _with_rungs(rows: Sequence[Row]) -> str:
    return f"{counted(len(rows), 'trial')} ({', '.join(dict.fromkeys(row['rung'] for row in rows))})"


def _beyond(hours: float, limit: float | None) -> str:
    if limit is None or hours <= limit:
        return ""
    return f": more than max_gpu_hours, {limit:g}; nothing will be submitted"
