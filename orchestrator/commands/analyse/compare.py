"""``scalevec compare``: each arm against the reference, and a verdict."""

from typing import Annotated, Literal

import typer

from scalevec import analysis
from scalevec.analysis.options import OptionChanges
from scalevec.orchestrator.cli.options import RUNS, Output, Reference, Runs, SourceName
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.analyse.question import question
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.foreign import AS_IT_IS, TableReading

MOST_CAVEATS = 5


def compare(
    source: SourceName,
    runs_dir: Runs = RUNS,
    reference: Reference = None,
    given: OptionChanges = {},  # noqa: B006 (never changed)
    reading: TableReading = AS_IT_IS,
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
    output: Output = None,
) -> Result:
    """Compare each arm with the reference: differences, intervals, a verdict."""
    data, arm, options = question(source, runs_dir, reference, given, reading)
    comparisons, of_laws = analysis.compare_arms(
        data.rows, reference=arm, options=options, by=by, tokens_per_parameter=tokens_per_parameter
    )

    def text() -> str:
        return "\n\n".join([*([of_pairs()] if comparisons else []), *([by_laws()] if of_laws else [])])

    def by_laws() -> str:
        details = [analysis.laws_comparison_text(of_laws)] if verbose else []
        for warning in dict.fromkeys(text for comparison in of_laws for text in comparison.warnings):
            if not verbose:
                note(f"caveat: {warning}")
        return "\n\n".join([*details, analysis.laws_table(of_laws)])

    def of_pairs() -> str:
        from scalevec.analysis.report.text import verdict_table

        if verbose:
            return f"{analysis.comparison_text(comparisons)}\n\n{verdict_table(comparisons)}"
        caveats = dict.fromkeys(text for comparison in comparisons for text in comparison.warnings)
        shown = [f"caveat: {caveat}" for caveat in [*caveats][:MOST_CAVEATS]]
        rest = len(caveats) - len(shown)
        shown += [f"{rest} more caveats, with --verbose"] if rest else []
        return "\n".join([verdict_table(comparisons), *shown])

    records = [*(pairs.to_dict() for pairs in comparisons), *(laws.to_dict() for laws in of_laws)]
    return Result(records, text, output=output)
