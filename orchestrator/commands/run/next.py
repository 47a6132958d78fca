"""``scalevec next``: what a verdict lacks, and the trials that would shorten an interval most."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, cast

import typer

from scalevec.analysis.errors import require_choice
from scalevec.analysis.formatting import count, joined
from scalevec.orchestrator.cli.options import RUNS, Executor, Placement, ProfileName, Runs, Sweep
from scalevec.orchestrator.cli.output import Result

if TYPE_CHECKING:
    from scalevec.analysis.comparison.trials import ComparedTrials
    from scalevec.analysis.comparison.verdict import Evidence
    from scalevec.analysis.power.next_trials import ExtendableSize, Purpose
    from scalevec.orchestrator.sweep.sweep_run import SweepRun
    from scalevec.sweeps.expansion.trials import Cell

AFTER = (
    "Estimates with these trials are exploratory, after the plan: for a claim run them under another name "
    "and with new seeds, or declare compare.until: decided before the first result"
)


def next(
    source: Sweep,
    runs_dir: Runs = RUNS,
    purpose: Annotated[
        str, typer.Option("--for", metavar="difference|scaling", help="The interval to shorten.")
    ] = "difference",
    hours: Annotated[
        float, typer.Option(metavar="H", help="GPU-hours to spend (machine-hours on a CPU).")
    ] = 10.0,
    executor: Executor = None,
    profile: ProfileName = None,
) -> Result:
    """Say what to do next: what the verdicts lack, then the trials that shorten an interval most.

    The noise is that of the sweep's pairs so far. For scaling a rung above the largest is weighed too.
    """
    from scalevec.analysis.comparison.trials import compared_trials
    from scalevec.analysis.comparison.verdict import decide, evidence_of_all
    from scalevec.analysis.power.next_trials import PURPOSES, first_of, halves_of_pairs, next_trials
    from scalevec.orchestrator.commands.run.plan import run_to_plan
    from scalevec.orchestrator.sources.sources import open_source

    require_choice("--for", purpose, PURPOSES)
    run, _ = run_to_plan(source, runs_dir, Placement(executor, profile, 1), without_corpus=False)
    data, options = open_source(run.sweep.name, run.runs_dir), run.sweep.compare.options()
    trials = compared_trials(data.rows, run.sweep.reference, options)
    sizes = [size for size in extendable(run, trials) if size.seeds or purpose != "difference"]
    halves = halves_of_pairs(sizes, trials, is_trend=purpose == "scaling")
    sds = {arm: trials.paired(arm).pair_sd or 0.0 for arm in halves.now}
    chosen = next_trials(sizes, halves, hours, cast("Purpose", purpose), options.level)
    family = [(evidence, decide(evidence)) for evidence in evidence_of_all(trials)]
    first = first_of(family, [_withheld(evidence) for evidence, _ in family])
    gpus = any(run.request(cell.rung).gpus for cell in run.cells)
    noise = joined([f"{sd:.2g} ({arm})" for arm, sd in sds.items()])
    text = [
        *(f"first: {line.text}" for line in first),
        chosen.text("GPU-hours" if gpus else "machine-hours"),
        f"noise: sd {noise} of a pair, within rungs",
        AFTER,
    ]
    record = chosen.to_dict() | {"first": [asdict(line) for line in first]}
    return Result(record | {"noise": sds, "status": "after the plan"}, "\n".join(text))


def _withheld(evidence: "Evidence") -> str:
    """Why the laws of an arm and its reference give no multiplier."""
    from scalevec.analysis.comparison.pair_laws import laws_of_pairs

    pairs = evidence.pairs
    options = evidence.options.with_loss(seeds_repeat=pairs.seeds_repeat)
    names = {"reference": evidence.reference, "arm": evidence.arm}
    if pairs.complete.empty:
        return ""
    shown = laws_of_pairs(pairs, options, names)
    return shown.reason if shown.laws else ""


def extendable(run: "SweepRun", trials: "ComparedTrials") -> "list[ExtendableSize]":
    """The sizes of the sweep with their complete pairs and the cost of a seed of all arms and settings.

    After them stands a rung above the largest, by the ladder's own ratio, which has no seed yet.
    """
    from scalevec.analysis.power.next_trials import ExtendableSize
    from scalevec.orchestrator.sweep.trial_costs import seconds_of

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
        seconds = sum(seconds_of(run, cell.template, rung) for cell in alike)
        hours = seconds / 3600 * request.nodes * (request.gpus or 1)
        name = f"{rung} with {count(tokens)} tokens" if several else rung
        settings = max(1, round(len(alike) / len(arms)))
        seeds = min((of_arm["seed"].nunique() for of_arm in here), default=0)
        run_sizes.append(ExtendableSize(name, rung, alike[0].n_params, tokens, seeds, hours, settings))
    return [*run_sizes, *_above(run_sizes)]


def _above(sizes: "list[ExtendableSize]") -> "list[ExtendableSize]":
    """A rung as far above the largest as that is above the one before."""
    tops = sorted(sizes, key=lambda size: (size.n_params, size.n_tokens))
    smaller = [size for size in tops if size.n_params < tops[-1].n_params]
    if not smaller:
        return []
    ratio, top = tops[-1].n_params / smaller[-1].n_params, tops[-1]
    return [
        replace(
            top,
            name=f"a new rung of N = {count(top.n_params * ratio)}",
            n_params=top.n_params * ratio,
            n_tokens=top.n_tokens * ratio,
            seeds=0,
            hours=top.hours * ratio**2,
        )
    ]
