"""``scalevec next``: the trials that would shorten an interval most."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from scalevec.analysis.formatting import count, joined
from scalevec.orchestrator.cli.options import RUNS, Executor, Placement, ProfileName, Runs, Sweep
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.run.plan import run_to_plan
from scalevec.orchestrator.sources.sources import open_source

if TYPE_CHECKING:
    from scalevec.analysis.comparison.trials import ComparedTrials
    from scalevec.analysis.power.next_trials import ExtendableSize
    from scalevec.orchestrator.sweep.sweep_run import SweepRun
    from scalevec.sweeps.expansion.trials import Cell

AFTER = (
    "Estimates with these trials are exploratory, after the plan: for a claim run them under another name "
    "and with new seeds"
)


def next(
    source: Sweep,
    runs_dir: Runs = RUNS,
    hours: Annotated[
        float, typer.Option(metavar="H", help="GPU-hours to spend (machine-hours on a CPU).")
    ] = 10.0,
    executor: Executor = None,
    profile: ProfileName = None,
) -> Result:
    """Say what to do next: which rates are to be tuned, where a size is missing, then which seeds help most.

    The noise is that of the sweep's pairs so far.
    """
    from scalevec.analysis.comparison.fairness import fair
    from scalevec.analysis.comparison.trials import compared_trials
    from scalevec.analysis.power.next_trials import next_trials

    run, _ = run_to_plan(source, runs_dir, Placement(executor, profile, 1), without_corpus=False)
    data, options = open_source(run.sweep.name, run.runs_dir), run.sweep.compare.options()
    trials = compared_trials(data.rows, run.sweep.reference, options)
    sizes = [size for size in extendable(run, trials) if size.seeds]
    chosen = next_trials(sizes, trials, hours)
    sds = {arm: trials.paired(arm).pair_sd or 0.0 for arm in chosen.arms}
    lines = {arm: fair(trials.pairs(arm), trials.reference, arm) for arm in trials.others}
    unfair = {arm: line for arm, line in lines.items() if line.code not in ("both_tuned", "unknown")}
    too_few = sizes_missing(trials)
    largest = max(run.cells, key=lambda cell: cell.n_params).rung
    gpus = any(run.request(cell.rung).gpus for cell in run.cells)
    noise = joined([f"{sd:.2g} ({arm})" for arm, sd in sds.items()])
    text = [
        *(f"fair, {arm}: {line.text}" for arm, line in unfair.items()),
        *(f"scale, {arm}: {why}; add a size beyond {largest}" for arm, why in too_few.items()),
        chosen.text("GPU-hours" if gpus else "machine-hours"),
        f"noise: sd {noise} of a pair, within rungs",
        AFTER,
    ]
    record = chosen.to_dict() | {"fair": {arm: asdict(line) for arm, line in lines.items()}}
    record["scale"] = too_few
    return Result(record | {"noise": sds, "status": "after the plan"}, "\n".join(text), wraps=True)


def sizes_missing(trials: "ComparedTrials") -> dict[str, str]:
    """The arms whose laws are refuted, or lie on too few sizes to be checked, and why."""
    from scalevec.analysis.comparison.pair_laws import laws_to_show, line_problem

    reasons = {arm: laws_to_show(trials.paired(arm)).reason for arm in trials.others}
    law = trials.options.law
    return {
        arm: reason for arm, reason in reasons.items() if reason and not line_problem(trials.pairs(arm), law)
    }


def extendable(run: "SweepRun", trials: "ComparedTrials") -> "list[ExtendableSize]":
    """The sizes of the sweep with their complete pairs and the cost of a seed of all arms and settings."""
    from scalevec.analysis.power.next_trials import ExtendableSize

    complete = {arm: trials.pairs(arm).complete for arm in trials.others}
    sizes: dict[tuple[str, int], list[Cell]] = {}
    for cell in run.cells:
        sizes.setdefault((cell.rung, cell.template.tokens), []).append(cell)
    several = len(sizes) > len({rung for rung, _ in sizes})
    run_sizes = []
    for (rung, tokens), alike in sizes.items():
        arms = {cell.arm for cell in alike}
        here = [
            pairs[(pairs["rung"] == rung) & (pairs["n_tokens"] == tokens)]
            for arm, pairs in complete.items()
            if arm in arms
        ]
        request = run.request(rung)
        seconds = sum(run.cost(cell.template, rung).seconds for cell in alike)
        hours = seconds / 3600 * request.nodes * (request.gpus or 1)
        name = f"{rung} with {count(tokens)} tokens" if several else rung
        settings = max(1, round(len(alike) / len(arms)))
        seeds = min((of_arm["seed"].nunique() for of_arm in here), default=0)
        run_sizes.append(ExtendableSize(name, rung, seeds, hours, settings))
    return run_sizes
