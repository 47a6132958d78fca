"""What an analysis is asked, by the sweep file and the command line; the verdicts that a sweep has given."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from scalevec import analysis
from scalevec.analysis.options import AnalysisOptions, OptionChanges, is_formula
from scalevec.analysis.registry import LAWS
from scalevec.orchestrator.errors import InvalidInputError, read_or_warn
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.sources import VERDICTS, Source, load_sweep, open_source
from scalevec.results.files import CorruptRecordError, utc_now
from scalevec.sweeps.fields import analysis_options

DEFAULT_REFERENCE = "baseline"


def question(
    source: str,
    runs_dir: Path,
    reference: str | None,
    given: OptionChanges,
    maps: Sequence[str] | None = None,
) -> tuple[Source, str, AnalysisOptions]:
    """Return the rows that ``source`` names, the arm to compare with and the options."""
    data = open_source(source, runs_dir, maps)
    arm, declared, options = reference_of(data, reference), *options_of(data, given)
    keep_verdicts(data, reference_of(data, None) if data.compare else arm, declared)
    return data, arm, options


def options_of(source: Source, given: OptionChanges) -> tuple[AnalysisOptions, AnalysisOptions]:
    """Return the options of the sweep's own question, and these with those that were ``given``.

    Standard error says which of them differ from the sweep file. Raises ``DataError``.
    """
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
    return declared, options


def with_given(source: Source, options: AnalysisOptions, given: OptionChanges) -> AnalysisOptions:
    """Return ``options`` with those that were ``given``: of laws those of plugins are known too.

    They are those of the sweep's own plugins. Raises ``DataError``.
    """
    law, folder = given.get("law", "power"), source.folder
    # The plugin may have got it since the sweep ran.
    if folder is not None and law not in LAWS and not is_formula(law):
        load = partial(load_sweep, folder.name, folder.path.parents[1], look_for_files=False)
        read_or_warn(load, None, "its plugins as they are now are not looked at")
    return replace(options, **given)


def reference_of(source: Source, reference: str | None) -> str:
    """Return the arm to compare with: the one named, the sweep's own, else ``baseline``, or the only one.

    Raises ``InvalidInputError`` with the arms there are.
    """
    chosen = reference or source.compare.get("reference")
    arms = sorted(source.rows["arm"].dropna().map(str).unique()) if "arm" in source.rows else []
    if chosen is None and (DEFAULT_REFERENCE in arms or len(arms) == 1):
        chosen = DEFAULT_REFERENCE if DEFAULT_REFERENCE in arms else arms[0]
    if chosen is None:
        if not arms:
            raise InvalidInputError(
                f"{source.name} has no column arm: name the one that tells the arms apart, --map arm=COLUMN; "
                "a table has one row for each run: losses of arms in columns of their own go below each other"
            )
        raise InvalidInputError(
            f"--reference is needed: the arm of {source.name} that the others are compared with; "
            f"arms: {', '.join(arms)}"
        )
    return str(chosen)


def keep_verdicts(source: Source, reference: str, declared: AnalysisOptions) -> None:
    """Keep each verdict of the sweep's own question that is due and not kept yet.

    Where the folder cannot be written, standard error says so: pairs that are added later will then look as
    if they had been planned.
    """
    if source.folder is None or declared.looks:  # declared looks need no memory: they follow from the pairs
        return
    try:
        verdicts = _new_verdicts(source, reference, declared)
        if verdicts:
            source.folder.add_verdicts(verdicts)
            source.rows.attrs[VERDICTS] = source.folder.verdicts()
    except analysis.DataError:
        return  # the command itself says what cannot be compared
    except (CorruptRecordError, OSError) as problem:
        note(f"warning: the verdict is not kept: {problem}")


def _new_verdicts(source: Source, reference: str, declared: AnalysisOptions) -> list[dict[str, Any]]:
    from scalevec.analysis.comparison.plan import is_due, pair_ids
    from scalevec.analysis.comparison.trials import compared_trials
    from scalevec.analysis.comparison.verdict import evidence_of_all

    before = source.rows.attrs.get(VERDICTS, [])
    trials = compared_trials(source.rows, reference, declared)
    due = [each for each in evidence_of_all(trials) if is_due(each.paired, before)]
    verdicts = [
        {
            "at": utc_now(),
            "reference": reference,
            "arm": evidence.paired.arm,
            "verdict": evidence.judgement.verdict,
            "loss_difference": asdict(evidence.difference),
            "level": declared.level,
            "margin": declared.margin,
            "pairs": pair_ids(evidence.paired.pairs),
        }
        for evidence in due
    ]
    return [record for record in verdicts if record["verdict"] != "invalid"]
