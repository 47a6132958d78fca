"""What an analysis is asked: the options of the command line over those of the sweep file."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from scalevec.analysis.options import AnalysisOptions, OptionChanges, is_formula
from scalevec.analysis.registry import LAWS
from scalevec.orchestrator.commands.analyse.kept_verdicts import keep_verdicts
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.foreign import AS_IT_IS, TableReading
from scalevec.orchestrator.sources.readable import readable
from scalevec.orchestrator.sources.sources import Source, open_source
from scalevec.orchestrator.sources.sweep_files import load_sweep
from scalevec.sweeps.plugins.registered import register_installed_laws

DEFAULT_REFERENCE = "baseline"


def question(
    source: str,
    runs_dir: Path,
    reference: str | None,
    given: OptionChanges,
    reading: TableReading = AS_IT_IS,
) -> tuple[Source, str, AnalysisOptions]:
    """Return the rows that ``source`` names, the arm to compare with and the options."""
    data = open_source(source, runs_dir, reading)
    arm, options = reference_of(data, reference), options_of(data, given)
    keep_verdicts(data, reference_of(data, None) if data.compare else arm, declared_options(data))
    return data, arm, options


def declared_options(source: Source) -> AnalysisOptions:
    """Return the options of the sweep's own question; the defaults for a table."""
    from scalevec.sweeps.options import analysis_options

    return AnalysisOptions(**analysis_options(source.compare))


def options_of(source: Source, given: OptionChanges) -> AnalysisOptions:
    """Return the options of the sweep's own question with those that were ``given``.

    Standard error says which of them differ from the sweep file. Raises ``DataError``.
    """
    from scalevec.sweeps.options import analysis_options

    planned = analysis_options(source.compare)
    declared = AnalysisOptions(**planned)
    options = with_given(source, declared, given)
    changed = [
        f"{name} {getattr(options, name)} (sweep file: {getattr(declared, name)})"
        for name in planned
        if getattr(options, name) != getattr(declared, name)
    ]
    if changed:
        note(f"other than in the sweep file: {', '.join(changed)}")
    return options


def with_given(source: Source, options: AnalysisOptions, given: OptionChanges) -> AnalysisOptions:
    """Return ``options`` with those that were ``given``: of laws those of plugins are known too.

    They are those of the sweep's own plugins and of installed ones. Raises ``DataError``.
    """
    law = given.get("law", "power")
    if is_formula(law):
        return replace(options, **given)
    if law not in LAWS and source.folder is not None:  # the plugin may have got it since the sweep ran
        folder = source.folder
        load = partial(load_sweep, folder.name, folder.path.parents[1], look_for_files=False)
        readable(load, None, "its plugins as they are now are not looked at")
    if law not in LAWS:
        for problem in register_installed_laws():
            note(f"warning: {problem}; its laws are not known")
    return replace(options, **given)


def reference_of(source: Source, reference: str | None) -> str:
    """Return the arm to compare with: the one named, the sweep's own, else ``baseline``, or the only one.

    Raises ``InvalidInputError`` with the arms there are.
    """
    chosen = reference or source.compare.get("reference")
    arms = sorted(source.rows["arm"].dropna().unique()) if "arm" in source.rows else []
    if chosen is None and (DEFAULT_REFERENCE in arms or len(arms) == 1):
        chosen = DEFAULT_REFERENCE if DEFAULT_REFERENCE in arms else arms[0]
    if chosen is None:
        raise InvalidInputError(
            f"--reference is needed: the arm of {source.name} that the others are compared with; "
            f"arms: {', '.join(map(str, arms)) or 'none (there is no column arm)'}"
        )
    return str(chosen)
