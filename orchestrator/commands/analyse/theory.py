"""``scalevec theory``: what a sweep measured along its runs."""

from scalevec.orchestrator.cli.options import RUNS, Output, Runs, SourceName
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.sources.sources import open_source


def theory(source: SourceName, runs_dir: Runs = RUNS, output: Output = None) -> Result:
    """Show what was measured along runs: movement, eigenvalues, sharpness."""
    from scalevec.analysis.report.theory import theory_summary, theory_text
    from scalevec.orchestrator.sources.measured import measured

    rows = theory_summary(measured(open_source(source, runs_dir), runs_dir))
    return Result(rows, theory_text(rows), output=output)
