"""What a sweep knows of a trial before it runs, whoever trains it: size, cost, and what its record says."""

import statistics
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.model.accounting import count_parameters
from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.costs.estimates import Cost, cost, foreign_cost, total_s, training_s
from scalevec.orchestrator.worker.provenance import commit_of
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder
from scalevec.sweeps.expansion.trials import epochs, evaluated_tokens
from scalevec.sweeps.trainers.any_trial import AnyTrial
from scalevec.sweeps.trainers.foreign_trial import ForeignTrial

if TYPE_CHECKING:
    from scalevec.orchestrator.sweep.sweep_run import SweepRun

_commit = cache(commit_of)


def cost_of(run: "SweepRun", trial: AnyTrial, rung: str, *, compiled: bool) -> Cost:
    """Estimate what ``trial`` takes; the seconds of a foreign trainer's as asked for, else as seen.

    ``compiled`` says whether its blocks are, which need less memory.
    """
    if not isinstance(trial, ForeignTrial):
        options = replace(run.options(rung), compiled=compiled)
        return cost(trial, options, evaluated_tokens(trial, run.corpus_facts), run.rates)
    return _foreign_cost(run, trial, rung)


def _foreign_cost(run: "SweepRun", trial: ForeignTrial, rung: str) -> Cost:
    if (asked := run.request(rung).time_s) is not None:
        return foreign_cost(trial, asked, "as resources.time says")
    seen = None if run.pace is None else run.pace * trial.n_params * trial.tokens
    return foreign_cost(trial, seen, "by the finished trials of this sweep")


def seconds_of(run: "SweepRun", trial: AnyTrial, rung: str) -> float:
    """Estimate the seconds of ``trial``, its start among them; 0 where nobody knows."""
    if isinstance(trial, ForeignTrial):
        return _foreign_cost(run, trial, rung).seconds
    return total_s(trial, run.options(rung), evaluated_tokens(trial, run.corpus_facts), run.rates)


def planned_s(run: "SweepRun", trial: AnyTrial, rung: str) -> float | None:
    """Estimate the seconds of training and evaluation alone; None where nobody knows."""
    if isinstance(trial, ForeignTrial):
        return _foreign_cost(run, trial, rung).seconds or None
    seconds = training_s(trial, run.options(rung), evaluated_tokens(trial, run.corpus_facts), run.rates)
    return float(f"{seconds:.4g}")


def devices(request: ResourceRequest) -> dict[str, float]:
    """What a trial keeps busy: its GPUs, where it has any, and the cores of all its machines."""
    return {"gpus": request.gpus * request.nodes, "cores": request.cpus_of_node * request.nodes}


def pace_of(folder: SweepFolder, runs_dir: Path) -> float | None:
    """The median seconds for a parameter and a token of the finished trials of a sweep; None without any."""
    paces: list[float] = []
    with suppress(CorruptRecordError):
        for member in folder.members() or []:
            result = RunDirectory.of(runs_dir, member["trial_id"]).result() or {}
            if result.get("wall_s") and result.get("n_tokens"):
                paces.append(result["wall_s"] / member["n_params"] / result["n_tokens"])
    return statistics.median(paces) if paces else None


def size_columns(trial: AnyTrial) -> dict[str, int]:
    """The columns of a tidy row that count parameters; of a foreign trainer's model only N is known."""
    if isinstance(trial, ForeignTrial):
        return {"n_params": trial.n_params, "n_params_scale_vectors": 0}
    return count_parameters(trial.model).columns()


def epochs_of(run: "SweepRun", trial: AnyTrial) -> float | None:
    """How often ``trial`` goes through its text; None where that is a foreign trainer's affair."""
    return None if isinstance(trial, ForeignTrial) else epochs(trial, run.corpus_facts)


def descriptive_of(run: "SweepRun", trial: AnyTrial) -> dict[str, Any]:
    """What a trial's record says beside the semantic fields."""
    if isinstance(trial, ForeignTrial):
        return {**size_columns(trial), "trainer_commit": _commit(run.sweep.source.folder)}
    source = run.sweep.corpus.source
    return {**size_columns(trial), "epochs": epochs_of(run, trial), "corpus_source": source}
