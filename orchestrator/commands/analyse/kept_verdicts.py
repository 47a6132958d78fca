"""The verdicts that a sweep has given: kept with the pairs they had, before anything is shown of them."""

from dataclasses import asdict
from typing import Any

from scalevec import analysis
from scalevec.analysis.options import AnalysisOptions
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.sources import VERDICTS, Source
from scalevec.results.files import CorruptRecordError, utc_now


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
