"""``scalevec compare``: each arm against the reference, and a verdict."""

from typing import Annotated

import typer

from scalevec import analysis
from scalevec.analysis.options import OptionChanges
from scalevec.orchestrator.cli.options import RUNS, Output, Reference, Runs, SourceName
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.analyse.question import question
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.foreign import AS_IT_IS, TableReading


def compare(
    source: SourceName,
    runs_dir: Runs = RUNS,
    reference: Reference = None,
    given: OptionChanges = {},  # noqa: B006 (never changed)
    reading: TableReading = AS_IT_IS,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Laws, multipliers and solver diagnostics too.")
    ] = False,
    output: Output = None,
) -> Result:
    """Compare each arm with the reference: differences, intervals, a verdict."""
    data, arm, options = question(source, runs_dir, reference, given, reading)
    comparisons = analysis.compare(data.rows, reference=arm, options=options)

    def text() -> str:
        from scalevec.analysis.report.verdict_table import verdict_table

        if verbose:
            return f"{analysis.comparison_text(comparisons)}\n\n{verdict_table(comparisons)}"
        for warning in dict.fromkeys(text for comparison in comparisons for text in comparison.warnings):
            note(f"caveat: {warning}")
        return verdict_table(comparisons)

    return Result([comparison.to_dict() for comparison in comparisons], text, output=output)
