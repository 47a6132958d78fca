"""The plan of a sweep as text: a line per stage, rung, setting and arm, the sum, and what could surprise."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import aligned, count, fitted
from scalevec.orchestrator.costs import UNKNOWN_TIME
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.progress import counted, duration, listed
from scalevec.orchestrator.scheduling.trunk_book import savings_text
from scalevec.orchestrator.sweep import planning
from scalevec.orchestrator.sweep.corpus_of_sweep import NOT_PREPARED
from scalevec.orchestrator.sweep.planning import Row
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from scalevec.results.run_directory import RESULT_STATES
from scalevec.sweeps.expansion.expand import code_files
from scalevec.sweeps.expansion.trials import CorpusFacts
from scalevec.sweeps.trainers.any_trial import ForeignTrial
from scalevec.sweeps.trainers.source_files import SCRIPTS, not_covered

if TYPE_CHECKING:
    from scalevec.analysis import NoiseFigure

_MANY_SEEDS = 10
LONGEST_ARMS = 24
"""Letters of the names of arms that stand in one row of a terminal."""
UNKNOWN_COLUMNS = ("epochs", "parameters", "vectors", "memory")
"""Columns of a plan that are a foreign trainer's own affair."""
_BUDGETS = ("tokens_per_parameter", "tokens_budget", "flops_budget")
_OF_AN_ARM = ("parameters", "vectors")
"""Columns that a terminal, where arms share a row, does without."""
_SPARE = ("epochs", "done", "memory", "N", "FLOPs", "tokens", "each", "D/N")
"""Columns that a narrow terminal does without, the first of them first."""


def plan_text(
    run: SweepRun,
    trials: Sequence[Row],
    jobs: int,
    noise: "NoiseFigure | None" = None,
    *,
    width: int | None = None,
    in_queue: bool = False,
) -> str:
    """Return a line per stage, rung, setting and arm, in the order in which they run; the sum.

    Where trials run ``in_queue`` of a cluster, the jobs that they become follow.

    A ``width`` in characters shortens the table by whole columns.
    """
    groups = _grouped(sorted(trials, key=_turn), by_arm=width is None)
    not_prepared = ("epochs",) if run.corpus_facts.fingerprint == NOT_PREPARED else ()
    unknown: tuple[str, ...] = not_prepared if run.sweep.trainer is None else UNKNOWN_COLUMNS
    unknown += ("each",) if all(row["rate"] == UNKNOWN_TIME for row in trials) else ()
    unknown += () if width is None else _OF_AN_ARM
    lines = [*_table(groups, width, unknown), *_summary(run, trials, jobs, in_queue=in_queue)]
    if len(run.sweep.arms) > 1:
        first, *more = detectable(run, trials, noise).split("\n")
        lines += [first, *more] if width is None else [f"{first}; more: --power"]
    lines += _predictions(run)
    return "\n".join(lines)


def _turn(row: Row) -> tuple[bool, float]:
    """Tuning first; in a stage the longest trials first, as the scheduler takes them."""
    return row["stage"] != "tuning", -float(f"{row['seconds']:.2g}")


def _grouped(trials: Sequence[Row], *, by_arm: bool) -> list[list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in trials:
        key = [row["stage"], row["rung"], row["n_tokens"], sorted(row["setting"].items())]
        key += [row["arm"]] if by_arm else []
        groups.setdefault(repr(key), []).append(row)
    return list(groups.values())


def _table(groups: Sequence[Sequence[Row]], width: int | None, unknown: Sequence[str]) -> list[str]:
    """The lines of the table, without the columns ``unknown``, nor those of ``_SPARE`` beyond ``width``."""
    columns: dict[str, Callable[[Sequence[Row]], str]] = {
        "stage": lambda rows: str(rows[0]["stage"]),
        "rung": lambda rows: str(rows[0]["rung"]),
        **_setting_columns(groups),
        "arm": _arms,
        "trials": lambda rows: str(len(rows)),
        "done": lambda rows: str(sum(row["state"] in RESULT_STATES for row in rows)),
        "parameters": lambda rows: _parameters(rows[0]),
        "N": lambda rows: count(rows[0]["n_params"]),
        "vectors": lambda rows: count(rows[0]["n_params_scale_vectors"]),
        "tokens": lambda rows: count(rows[0]["n_tokens"]),
        "D/N": lambda rows: f"{rows[0]['tokens_per_parameter']:.3g}",
        "epochs": lambda rows: f"{rows[0]['epochs']:.2f}",
        "FLOPs": lambda rows: f"{rows[0]['flops']:.1e}".replace("e+", "e"),
        "memory": lambda rows: f"{max(row['memory_bytes'] for row in rows) / 1e6:,.0f} MB",
        "each": lambda rows: duration(rows[0]["seconds"]),
    }
    cells = {name: list(map(cell, groups)) for name, cell in columns.items() if name not in unknown}
    return fitted(cells, cells.keys() - {"trials", *_OF_AN_ARM, *_SPARE}, _SPARE, width)


def _arms(rows: Sequence[Row]) -> str:
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    listed = ", ".join(arms)
    return listed if len(arms) == 1 or len(listed) <= LONGEST_ARMS else f"{len(arms)} arms"


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


def detectable(run: SweepRun, trials: Sequence[Row], noise: "NoiseFigure | None" = None) -> str:
    """What difference the comparison can find, as text, or why that cannot be said."""
    try:
        return planning.power(run, trials, noise).text
    except DataError as problem:
        return f"what this design can detect: {problem}"


def _predictions(run: SweepRun) -> list[str]:
    """What the sweep predicts, as one line."""
    from scalevec.analysis.comparison.predictions import words_of

    predictions = run.sweep.compare.predictions(run.sweep.reference)
    shown = "; ".join(map(words_of, predictions))
    return [f"predicted, and kept when the sweep first runs: {shown}"] if shown else []


def _summary(run: SweepRun, trials: Sequence[Row], jobs: int, *, in_queue: bool) -> list[str]:
    queued, trials = planning.queued_rungs(run, trials) if in_queue else [], planning.each_once(trials)
    left = planning.not_done(trials)
    flops = sum(row["flops"] - row["flops_from_trunk"] for row in left)
    seconds = sum(row["seconds"] - row["seconds_from_trunk"] for row in left)
    megabytes = sum(row["disk_bytes"] for row in trials) / 1e6
    files = sum(row["disk_files"] for row in trials)
    most = max((row["epochs"] or 0.0 for row in trials), default=0.0)
    time = f"about {duration(seconds / jobs)} left with {jobs} at a time (an estimate; a run corrects it)"
    if any(row["rate"] == UNKNOWN_TIME for row in left):
        time = "an unknown time left"
    if in_queue:
        at_a_time = counted(planning.most_at_a_time(queued), "job")
        time = (
            f"about {duration(planning.seconds_left(queued))} left with {at_a_time} at a time, without waits "
            "in the queue (an estimate)"
        )
    lines = [
        f"{counted(len(trials), 'trial')}, {len(trials) - len(left)} of them done; "
        f"{flops:.3g} FLOPs and {time}",
        f"disk: {megabytes:,.1f} MB of results in {files:,} files and folders with keep: {_kept(run)}",
        *(_corpus(run.corpus_facts, most) if run.sweep.trainer is None else foreign_lines(run)),
    ]
    match run.sweep.seeds:
        case (seed,) if 1 < seed <= _MANY_SEEDS:  # small, as a number of seeds is
            lines.append(f"seeds: {seed} is the one seed {seed}; {seed} seeds are {[*range(seed)]}")
    lines += savings_text(trials)
    if hours := planning.gpu_hours(trials):
        tuning = planning.gpu_hours([row for row in trials if row["stage"] == "tuning"])
        part = f", {tuning:,.3g} of them to tune" if tuning else ""
        lines.append(f"{hours:,.3g} GPU-hours left{part}{_beyond(hours, run.max_gpu_hours)}")
    rates = dict.fromkeys(row["rate"] for row in left)
    lines += [words if words == UNKNOWN_TIME else f"times: {words}" for words in rates]
    lines += _asked_for(run)
    lines += aligned(planning.jobs_table(queued), to_the_left=(0, 1)) if queued else ()
    lines += _recomputing(left)
    lines += _without_room(left)
    if most > 1 and run.corpus_facts.fingerprint != NOT_PREPARED:
        lines.append("warning: some trials see text more than once; their losses are not those of fresh text")
    if run.sweep.measure:
        what, every = " and ".join(run.sweep.measure.what), run.sweep.measure.every
        lines.append(f"{what} every {every} steps take time that is not in the estimate")
    if run.sweep.tune:
        lines.append(
            f"tuning may extend its grid by {run.sweep.tune.extend} steps; comparison follows its choices"
        )
    return lines


def _kept(run: SweepRun) -> str:
    """What is kept of checkpoints, by rung where rungs differ."""
    by_rung = {cell.rung: run.sweep.keep_for(cell.rung) for cell in run.cells}
    if len(set(by_rung.values())) == 1:
        return next(iter(by_rung.values()))
    return ", ".join(f"{kept} at {rung}" for rung, kept in by_rung.items())


def _corpus(facts: CorpusFacts, most_epochs: float) -> Iterator[str]:
    if facts.fingerprint == NOT_PREPARED:
        yield "corpus not prepared: epochs and trial ids are unknown"
        return
    yield (
        f"corpus {facts.fingerprint[:12]}: {facts.training_tokens:,} training tokens, "
        f"at most {most_epochs:.2f} epochs"
    )


def _asked_for(run: SweepRun) -> list[str]:
    """What a profile makes of the sweep's resources: a line for each kind of machine."""
    if run.profile == Profile():
        return []
    rungs: defaultdict[str, list[str]] = defaultdict(list)
    for rung in dict.fromkeys(cell.rung for cell in run.cells):
        rungs[_machine(run, rung)].append(rung)
    return [f"each trial of {', '.join(names)} asks for {machine}" for machine, names in rungs.items()]


def _machine(run: SweepRun, rung: str) -> str:
    request, partition = run.request(rung), run.profile.for_rung(rung).partition
    memory = f", {request.memory_gb_of_node:g} GB" if request.memory_gb_of_node else ""
    where = f" in partition {partition}" if partition else ""
    counted_of = ((request.cpus_of_node, "CPU"), (request.gpus, "GPU"))
    cpus, gpus = (f"{n:g} {of}{'s' * (n != 1)}" for n, of in counted_of)
    machines = f" on each of {request.nodes} machines" if request.nodes > 1 else ""
    return f"{cpus}, {gpus}{memory}{machines}{where}"


def _without_room(left: Sequence[Row]) -> Iterator[str]:
    """Yield a warning for each rung with trials that are too large for their devices."""
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for row in left:
        if row["no_room"]:
            groups[row["rung"]].append(row)
    for rung, rows in groups.items():
        largest = max(rows, key=lambda row: row["memory_bytes"])
        yield f"warning: {counted(len(rows), 'trial')} of rung {rung} would not fit: {largest['no_room']}"


def _recomputing(left: Sequence[Row]) -> Iterator[str]:
    """Yield which rungs go forward through their blocks again."""
    if again := [row for row in left if row["recompute"] == "block"]:
        yield (
            f"recompute: block for {listed(row['rung'] for row in again)}, as asked or since they would not "
            "fit without: a third more time, in the estimate (a smaller micro_batch may do without)"
        )


def _beyond(hours: float, limit: float | None) -> str:
    if limit is None or hours <= limit:
        return ""
    return f": more than max_gpu_hours, {limit:g}; nothing will be submitted"


def foreign_lines(run: SweepRun) -> Iterator[str]:
    """Yield what a person should know of the trainer before it runs."""
    section, template = run.sweep.trainer, run.cells[0].template
    assert section is not None
    assert isinstance(template, ForeignTrial)
    trainer = template.trainer
    named = listed([file.path for file in trainer.files])
    by = f"code_version {trainer.code_version}" if trainer.code_version else f"the content of {named}"
    yield f"trainer: {' '.join(trainer.command)}; a trial rests on {by}"
    names = code_files(run.cells)
    words = [word for word in trainer.command if "{" not in word]
    unseen = not_covered(run.sweep.source.folder, names, words)
    if not any(name.endswith(SCRIPTS) or "." not in name.rpartition("/")[2] for name in names):
        unseen = [f"what {trainer.command[0]} runs", *unseen]
    if unseen and not trainer.code_version:
        yield f"not covered by identity: {listed(unseen)}; name what it brings in under files"
    if section.checkpoint is None:
        yield "no checkpoint is named: a trial that is interrupted starts over"
    if section.loss_validation in (None, section.loss) and run.sweep.tune:
        yield (
            "warning: one loss for tuning and comparison (no loss_validation): rates are chosen on the text "
            "that is compared"
        )
