"""What a sweep knows of a trial before it runs, whoever trains it: size, cost, and what its record says."""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.model.accounting import count_parameters
from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.costs.estimates import SEEN, Cost, ForeignCost
from scalevec.orchestrator.worker.provenance import commit_of
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder
from scalevec.sweeps.expansion.trials import epochs, evaluated_tokens
from scalevec.sweeps.trainers.any_trial import AnyTrial, ForeignTrial

if TYPE_CHECKING:
    from scalevec.orchestrator.sweep.sweep_run import SweepRun

MOST_TIMED = 9
"""Finished trials of a size that are asked how long they took."""
_commit = cache(commit_of)


def cost_of(run: "SweepRun", trial: AnyTrial, rung: str) -> Cost | ForeignCost:
    """Estimate what ``trial`` of ``rung`` takes, after the finished trials.

    The seconds of a foreign trainer's are those that are asked for, where somebody does.
    """
    n_params = size_columns(trial)["n_params"]
    seen = _seen_s(run.pace, n_params, trial.tokens)
    if not isinstance(trial, ForeignTrial):
        tokens = evaluated_tokens(trial, run.corpus_facts)
        return Cost(trial, run.options(rung), tokens, seen)
    if (asked := run.request(rung).time_s) is not None:
        return ForeignCost(trial, asked, "as resources.time says")
    return ForeignCost(trial, seen, SEEN)


def _seen_s(pace: Mapping[int, float], n_params: int, tokens: int) -> float | None:
    """The seconds of a trial by the pace of the nearest size; None without any."""
    if not pace:
        return None
    nearest = min(pace, key=lambda size: abs(math.log(size / n_params)))
    return pace[nearest] * n_params * tokens


def devices(request: ResourceRequest) -> dict[str, float]:
    """What a trial keeps busy: its GPUs, where it has any, and the cores of all its machines."""
    return {"gpus": request.gpus * request.nodes, "cores": request.cpus_of_node * request.nodes}


def pace_of(folder: SweepFolder, runs_dir: Path) -> dict[int, float]:
    """The median seconds for a parameter and a token of the finished trials of a sweep, by N."""
    paces: defaultdict[int, list[float]] = defaultdict(list)
    with suppress(CorruptRecordError):
        for member in folder.members() or []:
            of_size = paces[member["n_params"]]
            if len(of_size) == MOST_TIMED:
                continue
            result = RunDirectory.of(runs_dir, member["trial_id"]).result() or {}
            # A branch has trained its own part alone.
            if result.get("wall_s") and result.get("n_tokens") and not result.get("trunk_step"):
                seconds = result["wall_s"] + ((result.get("timing") or {}).get("evaluation_s") or 0.0)
                of_size.append(seconds / member["n_params"] / result["n_tokens"])
    return {size: statistics.median(of_size) for size, of_size in paces.items() if of_size}


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
