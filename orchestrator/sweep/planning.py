"""The plan of a sweep before anything is spent: trials with their costs, jobs in a queue, power."""

import itertools
import math
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec import analysis
from scalevec.model.data import held_out
from scalevec.orchestrator.costs import FRESH_START_S, UNKNOWN_TIME, Cost, what_fits
from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.progress import duration
from scalevec.orchestrator.scheduling.trunk_book import add_savings, independent
from scalevec.orchestrator.sources.sources import open_source, states_of
from scalevec.orchestrator.sweep.corpus_of_sweep import NOT_PREPARED
from scalevec.orchestrator.sweep.kept_plan import Member
from scalevec.orchestrator.sweep.sweep_run import COMPARISON, TUNING, SweepRun
from scalevec.orchestrator.tuning import larger_rungs
from scalevec.orchestrator.tuning.choices import SIDES
from scalevec.results.run_directory import RESULT_STATES, trial_ids
from scalevec.sweeps.expansion.trials import Cell
from scalevec.sweeps.trainers.any_trial import AnyTrial, OwnTrial

if TYPE_CHECKING:
    from scalevec.analysis import NoiseFigure, PlannedRung
    from scalevec.analysis.power.detectable import PowerAnalysis

Row = dict[str, Any]
EARLY_S = 60.0
"""How much earlier than asked for SLURM may say that a job's time is nearly up."""
ONE_SETTING = "one setting alone"
"""What a plan calls the part of a design in one of its settings."""


def planned(run: SweepRun) -> list[Row]:
    """One row per trial; ``trial_id`` is None where a tuned field is still to be chosen."""
    sizes: dict[tuple[Any, ...], Row] = {}
    members = list(named(run))
    existing = {name for _, name in members if name}.intersection(trial_ids(run.runs_dir))
    # Without a run directory no index is made.
    states = states_of(run.runs_dir, sorted(existing)) if existing else {}
    rows = []
    for member, name in members:
        trial = member.trial
        # All of a cell that have the same batches are of one size, which takes long to compute.
        key = (member.cell, trial.tokens, trial.batches)
        if key not in sizes:
            sizes[key] = _size(run, trial, member.cell)
        rows.append({**_row(member, name, states.get(name or "", "pending")), **sizes[key]})
    add_savings(rows, [member.trial for member, _ in members])
    return rows


def named(run: SweepRun) -> Iterator[tuple[Member, str | None]]:
    """Every trial of the sweep with its id; None where a tuned field is still to be chosen."""
    for member in run.members():
        yield member, run.id_of(member.trial)
    for member in run.to_come():
        yield member, None
    for group in run.tuner.waiting:
        for cell, _ in itertools.product(group.cells, range(larger_rungs.n_points(group.grid))):
            for seed in cell.tune_seeds:
                yield Member(cell, TUNING, cell.trial(seed), ""), None
    for cell in run.tuner.to_check:
        if run.tuner.is_open(cell) and run.sweep.tune is not None:
            for seed in run.sweep.tune.seeds * len(SIDES):
                yield Member(cell, TUNING, cell.trial(seed), ""), None


def _row(member: Member, name: str | None, state: str) -> Row:
    """What tells a trial from the others of its cell."""
    trial = member.trial
    return {
        "trial_id": name,
        "stage": member.stage,
        "arm": member.cell.arm,
        "rung": member.cell.rung,
        "seed": trial.seed,
        "learning_rate": trial.learning_rate if name else None,
        "lr_status": member.lr_status if name else "to be tuned",
        "tokens_per_parameter": trial.tokens / member.cell.n_params,
        "setting": dict(member.cell.setting),
        "state": state,
    }


def _size(run: SweepRun, trial: AnyTrial, cell: Cell) -> Row:
    rung = cell.rung
    request, room, options = run.request(rung), run.room(rung), run.options(rung)
    needed = run.cost(trial, rung)
    no_room = None
    if room is not None and isinstance(needed, Cost) and needed.memory.total > room.size:
        no_room = what_fits(needed.trial, options, room)
    return {
        **trial.size_columns(),
        "n_tokens": trial.tokens,
        "epochs": run.epochs(trial),
        "device": options.device,
        "cpus": request.cpus,
        "gpus": request.gpus * request.nodes,
        "memory_gb": request.memory_gb,
        "recompute": options.recompute,
        "no_room": no_room,
        "room_is_certain": room is not None and room.is_certain,
        **needed.columns(),
    }


def require_times(run: SweepRun, trials: Sequence[Row]) -> None:
    """Raise ``InvalidInputError`` where a queue would get a time limit for trials of unknown length."""
    if run.sweep.trainer is None:
        return
    rungs = dict.fromkeys(row["rung"] for row in not_done(trials) if row["rate"] == UNKNOWN_TIME)
    if unknown := [rung for rung in rungs if run.profile.for_rung(rung).time == "auto"]:
        raise InvalidInputError(
            f"{UNKNOWN_TIME} ({', '.join(unknown)}), and a queue asks for a time limit: give minutes, as in "
            "resources: {default: {time: 30}}, or time: 30 in the profile. Nothing was sent"
        )


def require_budget(run: SweepRun, trials: Sequence[Row]) -> None:
    """Raise ``InvalidInputError`` where what is left needs more GPU hours than sweep or profile allow."""
    limit, hours = run.max_gpu_hours, gpu_hours(trials)
    if limit is not None and hours > limit:
        raise InvalidInputError(
            f"max_gpu_hours is {limit:g}; what is left needs about {hours:.3g}. Nothing was sent"
        )


def require_space(run: SweepRun, trials: Sequence[Row]) -> None:
    """Raise ``MissingRequirementError`` where RUNS_DIR has less space than what is left will take."""
    asked = {member.cell.rung for member in run.asked_for([member for member, _ in named(run)])}
    # Results, and the states of trunks meanwhile.
    to_come = (row for row in not_done(trials) if row["rung"] in asked)
    needed = sum(row["disk_bytes"] + row["trunk_bytes"] for row in to_come)
    free = shutil.disk_usage(run.runs_dir).free
    if free < needed:
        raise MissingRequirementError(
            f"{run.runs_dir}: {free / 1e9:.3g} GB are free, what is left takes about {needed / 1e9:.3g} GB. "
            "Nothing was sent; free some space, or keep fewer checkpoints"
        )


def require_room(trials: Sequence[Row]) -> None:
    """Raise ``InvalidInputError`` where a trial that is not done would not fit on a device that is known."""
    for row in not_done(trials):
        if row["no_room"] and row["room_is_certain"]:
            raise InvalidInputError(
                f"rung {row['rung']}, arm {row['arm']}: {row['no_room']}. Nothing was sent"
            )


def each_once(trials: Sequence[Row]) -> list[Row]:
    """The rows of a plan, each trial once: arms that are identical by construction share theirs."""
    return list({row["trial_id"] or index: row for index, row in enumerate(trials)}.values())


def not_done(trials: Sequence[Row]) -> list[Row]:
    """The rows of what is not done yet, each trial once."""
    return [row for row in each_once(trials) if row["state"] not in RESULT_STATES]


def gpu_hours(trials: Sequence[Row]) -> float:
    """GPU hours of what is not done yet: GPUs times the estimated time, each trial and trunk once."""
    seconds = (row["gpus"] * (row["seconds"] - row["seconds_from_trunk"]) for row in not_done(trials))
    return float(sum(seconds)) / 3600


def without_identity(trials: Sequence[Row]) -> list[Row]:
    """Return the rows of a plan whose corpus nobody has looked at: ids and epochs are unknown."""
    return [row | {"trial_id": None, "trunk_id": None, "epochs": None} for row in trials]


@dataclass(frozen=True)
class QueuedRung:
    """The jobs of one rung in one stage; all of them ask for the same."""

    stage: str
    rung: str
    rows: Sequence[Row]
    profile: Profile
    time_s: float | None
    """What the sweep file asks for; None leaves it to the estimate."""

    @property
    def jobs(self) -> int:
        """Trials that share a job count once."""
        return math.ceil(len(self.rows) / len(self._longest_job))

    @cached_property
    def _longest_job(self) -> list[float]:
        """The estimated seconds of the trials that share a job and take longest."""
        longest = sorted((float(row["seconds"]) for row in self.rows), reverse=True)
        return longest[: self.profile.bundle_size(longest)]

    @property
    def at_a_time(self) -> int:
        """Jobs that the profile lets run at a time."""
        return min(self.jobs, self.profile.max_parallel or self.jobs, self.profile.max_submitted or self.jobs)

    @property
    def longest_job_s(self) -> float:
        """Estimated seconds of the longest job."""
        return sum(self._longest_job)

    @property
    def minutes(self) -> int:
        """The time limit of each job."""
        return self.profile.limit_minutes(self.time_s, self._longest_job)

    @property
    def starts(self) -> int:
        """How often the longest job is started: at its time limit it goes on from a checkpoint."""
        limit_s = 60.0 * self.minutes
        if self.longest_job_s <= limit_s:
            return 1
        # What it has between its start and the signal before its time limit, at worst.
        to_train_s = limit_s - min(self.profile.notice_s, limit_s / 2) - EARLY_S - FRESH_START_S
        return math.ceil(self.longest_job_s / max(to_train_s, 1.0))

    @property
    def most_gpu_hours(self) -> float:
        """What the jobs use if each of them takes its time limit at every start."""
        return float(self.starts * self.jobs * math.ceil(self.rows[0]["gpus"]) * self.minutes / 60)

    @property
    def seconds(self) -> float:
        """Estimated seconds until all have run, if the cluster runs as many at a time as it may."""
        work = float(sum(row["seconds"] - row["seconds_from_trunk"] for row in self.rows))
        return max(work / self.at_a_time, self.longest_job_s)


def queued_rungs(run: SweepRun, trials: Sequence[Row]) -> list[QueuedRung]:
    """Return what is not done yet as the queue gets it, tuning first."""
    groups: dict[tuple[bool, str], list[Row]] = {}
    for row in not_done(trials):
        groups.setdefault((row["stage"] != "tuning", row["rung"]), []).append(row)
    return [
        QueuedRung(rows[0]["stage"], rung, rows, run.profile.for_rung(rung), run.request(rung).time_s)
        for (_, rung), rows in sorted(groups.items(), key=lambda group: group[0][0])
    ]


def seconds_left(rungs: Sequence[QueuedRung]) -> float:
    """Stage after stage; the rungs of one run side by side."""
    stages = {rung.stage for rung in rungs}
    return sum(max(rung.seconds for rung in rungs if rung.stage == stage) for stage in stages)


def most_at_a_time(rungs: Sequence[QueuedRung]) -> int:
    """Return how many jobs the profile lets run at a time."""
    stages = {rung.stage for rung in rungs}
    most = max((sum(rung.at_a_time for rung in rungs if rung.stage == stage) for stage in stages), default=0)
    limits = [rung.profile.max_submitted for rung in rungs if rung.profile.max_submitted]
    return min([most, *limits])


def jobs_table(rungs: Sequence[QueuedRung]) -> list[list[str]]:
    """Return the rows of a table, the names of its columns first."""
    rows = [["stage", "rung", "trials", "jobs", "at a time", "limit", "GPU-hours", "at most"]]
    for rung in rungs:
        counts = (str(count) for count in (len(rung.rows), rung.jobs, rung.at_a_time))
        limit = duration(60 * rung.minutes) + (f", {rung.starts} starts" if rung.starts > 1 else "")
        hours = (f"{used:.3g}" for used in (gpu_hours(rung.rows), rung.most_gpu_hours))
        rows.append([rung.stage, rung.rung, *counts, limit, *hours])
    return rows


def noise_figure(sd: float | None, pilot: str | None, reference: str, runs_dir: Path) -> "NoiseFigure | None":
    """The noise that was given, or that of a pilot's pairs; None for what ``analysis`` takes for typical.

    Raises :class:`InvalidInputError` for both at once and for an sd that is none, ``DataError`` for a pilot
    without a repeated pair.
    """
    if sd is None and pilot is None:
        return None
    if sd is not None and pilot is not None:
        raise InvalidInputError("--noise and --pilot both name the noise; allowed: one of them")
    if pilot is not None:
        return analysis.pilot_noise(open_source(pilot, runs_dir).rows, reference)
    if sd is None or not 0 < sd < float("inf"):
        raise InvalidInputError(f"--noise is {sd}; allowed: a positive number of nats/token")
    from scalevec.analysis.power.detectable import TYPICAL

    return analysis.NoiseFigure(sd, TYPICAL.slope, "as given; the slope is typical")


def power(run: SweepRun, trials: Sequence[Row], noise: "NoiseFigure | None" = None) -> "PowerAnalysis":
    """What difference the comparison can find, at ``noise`` or what ``analysis`` takes for typical.

    Token budgets that share a trunk are not independent: of them the largest counts. The design is that of
    the arm with the most pairs; of others with fewer, and of one setting, it says what they detect. Raises
    :class:`InvalidInputError` for a sweep of one arm, ``DataError`` for a design of which nothing can be
    said.
    """
    if len(run.sweep.arms) < 2:
        raise InvalidInputError(
            f"sweep {run.sweep.name} has one arm; there is nothing that its comparison could detect"
        )
    from scalevec.analysis.power.detectable import TYPICAL

    (_, rungs), *of_others = _designs(run, trials).items()
    parts = {f"{arms}, in fewer cells": of_arms for arms, of_arms in of_others}
    return analysis.detectable(
        rungs,
        noise or TYPICAL,
        n_arms=len(run.sweep.arms) - 1,
        test_tokens=_test_tokens(run, trials),
        parts=_one_setting(rungs) | parts,
    )


def _designs(run: SweepRun, trials: Sequence[Row]) -> "dict[str, tuple[PlannedRung, ...]]":
    """The pairs of every arm with the reference by cell, arms that have the same ones together."""
    of_arms = {name for fields in run.sweep.arms.values() for name in fields.given()}
    seeds: dict[str, dict[tuple[str, int, int, str], set[int]]] = {name: {} for name in run.sweep.arms}
    for row in independent(trials):
        if row["stage"] == COMPARISON:
            setting = _setting_of_streams(row["setting"], of_arms)
            cell = (row["rung"], row["n_params"], row["n_tokens"], setting)
            seeds[row["arm"]].setdefault(cell, set()).add(row["seed"])
    reference = seeds.pop(run.sweep.reference)
    arms: dict[tuple[PlannedRung, ...], list[str]] = {}
    for arm, of_arm in seeds.items():
        paired = {cell: of_arm[cell] & of_cell for cell, of_cell in reference.items() if cell in of_arm}
        rungs = (
            analysis.PlannedRung(*cell[:3], len(common), cell[3]) for cell, common in paired.items() if common
        )
        arms.setdefault(tuple(rungs), []).append(arm)
    ordered = sorted(arms, key=lambda rungs: -sum(rung.seeds for rung in rungs))
    return {", ".join(arms[rungs]): rungs for rungs in ordered}


def _one_setting(rungs: "Sequence[PlannedRung]") -> "dict[str, tuple[PlannedRung, ...]]":
    """Of a design with several settings the part in one of them, the one with the fewest pairs."""
    settings = {
        rung.setting: tuple(other for other in rungs if other.setting == rung.setting) for rung in rungs
    }
    if len(settings) < 2:
        return {}
    return {ONE_SETTING: min(settings.values(), key=lambda part: sum(rung.seeds for rung in part))}


_ONE_STREAM = ("tokens_per_parameter", "tokens_budget", "flops_budget", "learning_rate")


def _setting_of_streams(setting: Mapping[str, Any], of_arms: Collection[str]) -> str:
    """What of a setting gives its trials random numbers of their own (``model.identity.stream_base``).

    A field that the arms choose gives none.
    """
    without = (*_ONE_STREAM, *of_arms)
    return repr(sorted((name, str(value)) for name, value in setting.items() if name not in without))


def _test_tokens(run: SweepRun, trials: Sequence[Row]) -> float | None:
    """Tokens of the test split that losses are taken on; of a corpus not looked at, as a plan must guess.

    Then the corpus is taken to be as long as the longest run. None for the text of a foreign trainer.
    """
    own_trials = [cell.template for cell in run.cells if isinstance(cell.template, OwnTrial)]
    if not own_trials:
        return None
    split = float(run.corpus_facts.held_out_tokens[1])
    if run.corpus_facts.fingerprint == NOT_PREPARED:
        split = held_out(max(row["n_tokens"] for row in trials))
    limits = (trial.evaluation_tokens for trial in own_trials)
    return min(split, max(limit or split for limit in limits))
