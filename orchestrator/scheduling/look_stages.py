"""A comparison that goes on until it is decided: one stage a look, with the seeds that this look takes."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.errors import InvalidInputError

if TYPE_CHECKING:
    from scalevec.orchestrator.sweep.sweep_run import SweepRun

Seeds = Mapping[str, int]
"""How many seeds of every cell an arm is run with, by arm."""
_PLAN = ("level", "margin", "y", "where")
"""The options beside the looks that decide where an arm ends."""


def declared(run: "SweepRun") -> dict[str, Any]:
    """The plan of looks as the sweep file has it."""
    options, compare = run.sweep.compare.options(), run.sweep.compare
    plan: dict[str, Any] = {
        "looks": list(run.sweep.looks) if run.sweep.looks else None,
        "until": options.until,
    }
    if options.until == "last":
        return plan
    return {
        **plan,
        "seeds": list(run.sweep.seeds),
        "arms": list(run.sweep.arms),
        "reference": run.sweep.reference,
        "at_most": compare.at_most.gpu_hours if compare.at_most else None,
        **{name: getattr(options, name) for name in _PLAN},
    }


def keep_looks(run: "SweepRun", gpu_hours: Callable[[int], float]) -> tuple[int, ...] | None:
    """The looks of the sweep; where it goes on until it is decided they are kept, the first time.

    ``gpu_hours`` are those of the comparison with so many seeds of every cell.

    Raises ``InvalidInputError`` where its limit leaves no look.
    """
    looks, plan = run.sweep.looks, declared(run)
    if looks is None or plan["until"] == "last":
        run.folder.looks_path.unlink(
            missing_ok=True
        )  # no result of an arm is known, else the edit was refused
        return looks
    kept = run.folder.looks()
    if kept is not None and kept["declared"] == plan:
        return tuple(kept["looks"])
    looks = _affordable(run, looks, gpu_hours)
    run.folder.keep_looks(plan, list(looks))
    return looks


def _affordable(
    run: "SweepRun", looks: tuple[int, ...], gpu_hours: Callable[[int], float]
) -> tuple[int, ...]:
    """Those of ``looks`` that the limit leaves."""
    limit = run.sweep.compare.at_most
    if limit is None:
        return looks
    left = tuple(look for look in looks if gpu_hours(look) <= limit.gpu_hours)
    if not left:
        raise InvalidInputError(
            f"compare.at_most.gpu_hours is {limit.gpu_hours:g}; the first look, at {looks[0]} seeds, takes "
            f"about {gpu_hours(looks[0]):.3g}: allow as much, or take smaller rungs"
        )
    return left


def stages(run: "SweepRun") -> Iterator[Seeds]:
    """Yield the seeds of each look, until every arm has ended; each is to be complete before the next.

    An arm that has ended keeps the seeds that it ended with. The reference goes on with the others. A sweep
    that does not go on until it is decided is one stage with all of its seeds: nothing is yielded but {}.
    """
    kept = run.folder.looks()
    if run.sweep.compare.options().until == "last" or kept is None:
        yield {}
        return
    looks = kept["looks"]
    seeds = dict.fromkeys(run.sweep.arms, looks[0])
    for number, look in enumerate(looks, 1):
        yield seeds
        going_on = _undecided(run)
        if not going_on or look == looks[-1]:
            return
        following = looks[number]
        open_arms = ", ".join(going_on)
        run.progress.message(
            f"look {number} of {len(looks)}, at {look} seeds: {open_arms} undecided; on to {following} seeds"
        )
        seeds |= dict.fromkeys((run.sweep.reference, *going_on), following)


def _undecided(run: "SweepRun") -> list[str]:
    """The arms for which the looks so far decide nothing, by the same rule as the verdict."""
    from scalevec.analysis.comparison.trials import compared_trials
    from scalevec.analysis.options import AnalysisOptions
    from scalevec.orchestrator.sources.sources import open_sweep
    from scalevec.sweeps.options import analysis_options

    source = open_sweep(run.sweep.name, run.runs_dir)
    options = AnalysisOptions(**analysis_options(source.compare))
    trials = compared_trials(source.rows, run.sweep.reference, options)
    return [arm for arm in trials.others if trials.paired(arm).pairs.next_look is not None]
