"""``scalevec compare``: each arm against the reference, and a verdict."""

from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from scalevec import analysis
from scalevec.analysis.errors import require_choice
from scalevec.analysis.options import OptionChanges
from scalevec.orchestrator.cli.options import RUNS, Maps, Output, Reference, Runs, SourceName
from scalevec.orchestrator.cli.output import Result, terminal_width
from scalevec.orchestrator.commands.analyse.question import question

MOST_CAVEATS = 5


def compare(
    source: SourceName,
    runs_dir: Runs = RUNS,
    reference: Reference = None,
    given: OptionChanges = {},  # noqa: B006 (never changed)
    maps: Maps = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Laws, multipliers and solver diagnostics too.")
    ] = False,
    by: Annotated[
        Literal["pairs", "laws"] | None,
        typer.Option(
            help="Compare by pairs or by fitted laws (default: pairs, laws for arms that have none)."
        ),
    ] = None,
    tokens_per_parameter: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            metavar="RATIO",
            help="Tokens per parameter at which laws are compared (default: the runs' median).",
        ),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option("--arm", metavar="ARM", help="Arm whose lines are shown (default: of two arms all)."),
    ] = None,
    output: Output = None,
) -> Result:
    """Compare each arm with the reference: differences, intervals, a verdict."""
    data, reference, options = question(source, runs_dir, reference, given, maps)
    by_pairs, by_laws = analysis.compare_arms(
        data.rows, reference=reference, options=options, by=by, tokens_per_parameter=tokens_per_parameter
    )
    compared = [each.arm for each in (*by_pairs, *by_laws)]
    for name in arm or ():
        require_choice("--arm", name, compared)

    def text() -> str:
        kinds = [kind for kind in (by_pairs, by_laws) if kind]
        shown = arm or (compared if verbose else [])
        return "\n\n".join(_answer(kind, shown, verbose=verbose) for kind in kinds)

    return Result([each.to_dict() for each in (*by_pairs, *by_laws)], text, output=output, wraps=True)


def _answer(comparisons: Sequence["analysis.Comparison"], arms: Sequence[str], *, verbose: bool) -> str:
    """The four lines of ``arms`` and one table, then the first caveats; all there is if ``verbose``."""
    from scalevec.analysis.report.text import WIDTH, verdict_table

    table = verdict_table(comparisons, min(WIDTH, terminal_width() or WIDTH), arms)
    if verbose:
        return f"{analysis.comparison_text(comparisons)}\n\n{table}"
    return "\n".join([table, *_caveats(comparisons)])


def _caveats(comparisons: Sequence["analysis.Comparison"]) -> list[str]:
    """The first caveats, each once, and how many more there are."""
    caveats = list(dict.fromkeys(text for comparison in comparisons for text in comparison.warnings))
    shown = [f"caveat: {caveat}" for caveat in caveats[:MOST_CAVEATS]]
    rest = len(caveats) - len(shown)
    return [*shown, *([f"{rest} more caveats, with --verbose"] if rest else [])]
