"""``scalevec fit``: a scaling law for each arm."""

from scalevec import analysis
from scalevec.analysis.options import OptionChanges
from scalevec.orchestrator.cli.options import RUNS, Maps, Output, Runs, SourceName
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.analyse.question import with_given
from scalevec.orchestrator.sources.sources import open_source


def fit(
    source: SourceName,
    runs_dir: Runs = RUNS,
    given: OptionChanges = {},  # noqa: B006 (never changed)
    maps: Maps = None,
    output: Output = None,
) -> Result:
    """Fit a scaling law to each arm."""
    data = open_source(source, runs_dir, maps)
    named = given.get("law", ())
    laws = [named] if isinstance(named, str) else list(named)
    asked: list[OptionChanges] = [{**given, "law": law} for law in laws] or [given]
    options = [with_given(data, analysis.AnalysisOptions(), of_law) for of_law in asked]
    if len(laws) > 1:
        fits = analysis.fits_of_laws(data.rows, [of_law.law for of_law in options], options[0])
        return Result([fit.to_dict() for fit in fits], analysis.laws_text(fits), output=output, wraps=True)
    of_arms = analysis.fit(data.rows, options[0])
    return Result([fit.to_dict() for fit in of_arms.values()], of_arms.summary(), output=output, wraps=True)
