"""``scalevec next``: the trials whose addition would shorten an interval most."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, cast

import typer

from scalevec.analysis.errors import require_choice
from scalevec.analysis.formatting import count, joined
from scalevec.analysis.options import AnalysisOptions
from scalevec.orchestrator.cli.options import RUNS, Executor, Placement, ProfileName, Runs, Sweep
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scalevec.analysis.comparison.trials import ComparedTrials
    from scalevec.analysis.power.next_trials import ExtendableCell, Purpose
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
        str, typer.Option("--for", metavar="difference|scaling|prediction", help="The interval to shorten.")
    ] = "difference",
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POINT", help="Where to predict, as N=1e9,D=2e10, or a table; may be given again."
        ),
    ] = None,
    hours: Annotated[
        float, typer.Option(metavar="H", help="GPU-hours to spend (machine-hours on a CPU).")
    ] = 10.0,
    executor: Executor = None,
    profile: ProfileName = None,
) -> Result:
    """Choose the trials to add to a sweep: those that shorten an interval most per hour.

    The noise is that of the sweep's pairs so far. For scaling and predictions a rung above the largest and,
    where tokens vary, budgets beside those of the sweep are weighed too.
    """
    from scalevec.analysis.comparison.trials import compared_trials
    from scalevec.analysis.power.law_at_points import laws_at_points
    from scalevec.analysis.power.next_trials import PURPOSES, next_trials
    from scalevec.analysis.power.noise_figure import pilot_noise
    from scalevec.orchestrator.commands.analyse.predict import points_of
    from scalevec.orchestrator.commands.run.plan import run_to_plan
    from scalevec.orchestrator.sources.sources import open_source

    require_choice("--for", purpose, PURPOSES)
    if at and purpose != "prediction":
        raise InvalidInputError(f"--at is given for {purpose}; allowed: with --for prediction")
    run, _ = run_to_plan(source, runs_dir, Placement(executor, profile, 1), without_corpus=False)
    data, reference = open_source(run.sweep.name, run.runs_dir), run.sweep.reference
    rows, options = data.rows, run.sweep.compare.options()
    points = [points_of(text, rows.columns) for text in at or ()]
    laws = laws_at_points(rows, points, options) if purpose == "prediction" else ()
    noise = pilot_noise(rows, reference)
    of_noise = f"sd {noise.sd:.2g} per pair, of its own pairs as {noise.source}"
    if laws:
        sds = dict.fromkeys(f"{law.noise[0]:.2g} ({law.fitted.data.arm})" for law in laws)
        of_noise = f"sd {joined(list(sds))} of one trial around the law, on the scale of its residuals"
    cells = extendable(run, compared_trials(rows, reference, AnalysisOptions()))
    chosen = next_trials(cells, noise, hours, cast("Purpose", purpose), options.level, laws)
    gpus = any(run.request(cell.rung).gpus for cell in run.cells)
    text = "\n".join(
        [
            chosen.text("GPU-hours" if gpus else "machine-hours"),
            f"noise: {of_noise}",
            AFTER,
        ]
    )
    return Result(chosen.to_dict() | {"noise": noise.sd, "status": "after the plan"}, text)


def extendable(run: "SweepRun", trials: "ComparedTrials") -> "list[ExtendableCell]":
    """The sizes of the sweep with their complete pairs and the cost of a seed of all arms and settings.

    After them stands what has no seed yet: a rung above the largest, by the ladder's own ratio; where tokens
    vary, half the smallest and twice the largest budget of each size.
    """
    from scalevec.analysis.power.next_trials import ExtendableCell
    from scalevec.orchestrator.sweep.trial_costs import cost_of

    complete = [trials.pairs(arm).complete for arm in trials.others]
    sizes: dict[tuple[str, int], list[Cell]] = {}
    for cell in run.cells:
        sizes.setdefault((cell.rung, cell.template.tokens), []).append(cell)
    several = len(sizes) > len({rung for rung, _ in sizes})
    cells = []
    for (rung, tokens), alike in sizes.items():
        here = [pairs[(pairs["rung"] == rung) & (pairs["n_tokens"] == tokens)] for pairs in complete]
        request = run.request(rung)
        seconds = sum(cost_of(run, cell.template, rung).seconds for cell in alike)
        hours = seconds / 3600 * request.nodes * (request.gpus or 1)
        name = f"{rung} with {count(tokens)} tokens" if several else rung
        settings = max(1, round(len(alike) / len(run.sweep.arms)))
        seeds = min(of_arm["seed"].nunique() for of_arm in here)
        cells.append(ExtendableCell(name, alike[0].n_params, tokens, seeds, hours, settings))
    return [*cells, *_above(cells), *(_other_budgets(cells) if several else ())]


def _above(cells: "list[ExtendableCell]") -> "list[ExtendableCell]":
    """A rung as far above the largest as that is above the one before."""
    tops = sorted(cells, key=lambda cell: (cell.n_params, cell.n_tokens))
    smaller = [cell for cell in tops if cell.n_params < tops[-1].n_params]
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


def _other_budgets(cells: "list[ExtendableCell]") -> "Iterator[ExtendableCell]":
    """Half the smallest and twice the largest budget of each size, at their share of the cost."""
    for n_params in dict.fromkeys(cell.n_params for cell in cells):
        budgets = sorted(
            (cell for cell in cells if cell.n_params == n_params), key=lambda cell: cell.n_tokens
        )
        for cell, ratio in ((budgets[0], 0.5), (budgets[-1], 2.0)):
            name = f"{cell.name.split(' with ')[0]} with {count(cell.n_tokens * ratio)} tokens (a new budget)"
            yield replace(cell, name=name, n_tokens=cell.n_tokens * ratio, seeds=0, hours=cell.hours * ratio)
