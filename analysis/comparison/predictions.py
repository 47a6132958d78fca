"""What was predicted of a comparison before its results, beside what was seen.

The tidy table of a sweep brings the lists of predictions along, in ``DataFrame.attrs["predictions"]``, as the
sweep's folder keeps them: each with its hash and the time at which the sweep first ran with it. The last list
is the one that stands; earlier ones are shown beside it.

A predicted sign is tested: it came true, or came out opposite, where the mean difference over the cells that
it speaks of is not zero at the level of the comparison, corrected by Holm over the signs of its list. A
predicted difference came true where the mean lies in its interval, which is about what will be seen, noise
included.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from scalevec.analysis.comparison.differences import PairedArm
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.pairs import PairKind
from scalevec.analysis.data.where import select
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import p_value, percent, plural, signed, span
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics.paired import holm

PREDICTIONS = "predictions"
"""Key of ``DataFrame.attrs``."""
Outcome = Literal["came true", "came out opposite", "came out otherwise", "cannot be told"]
CAME_TRUE: Final = "came true"
OPPOSITE: Final = "came out opposite"
OTHERWISE: Final = "came out otherwise"
UNTOLD: Final = "cannot be told"
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Prediction:
    """One prediction and what came of it; differences are arm minus reference, in nats/token.

    Attributes:
        arm: The arm whose loss was predicted, against ``reference``.
        reference: The arm that it is compared with.
        where: The expression for the cells that are meant; None for all that both arms have.
        sign: The predicted sign of the difference, ``lower`` or ``higher``; None where a value was predicted.
        difference: The predicted mean difference; None where a sign was predicted.
        interval: In which it was predicted to be seen.
        kept_at: When the sweep first ran with the list that holds the prediction (ISO 8601, UTC).
        with_result: How many of the trials that it speaks of had a result by then.
        stands: Whether no later list took the place of its list.
        pairs: Complete pairs of the cells that are meant.
        seen: The mean difference over those cells; None without a complete pair.
        seen_interval: Its interval at the comparison's level; None while a planned pair has no result.
        p_value: Two-sided, against zero; ``p_holm`` is corrected over the signs of the list.
        outcome: ``came true``, ``came out opposite`` (a sign), ``came out otherwise`` (a difference) or
            ``cannot be told``.
        reason: Why it cannot be told; empty otherwise.
        sentence: All of this for people.
    """

    arm: str
    reference: str
    where: str | None
    sign: str | None
    difference: float | None
    interval: tuple[float, float] | None
    kept_at: str
    with_result: int
    stands: bool
    pairs: int = 0
    seen: float | None = None
    seen_interval: tuple[float, float] | None = None
    p_value: float | None = None
    p_holm: float | None = None
    outcome: Outcome = UNTOLD
    reason: str = ""
    sentence: str = ""

    @property
    def words(self) -> str:
        """What was predicted, as text."""
        return words_of(vars(self))


def words_of(entry: Record) -> str:
    """A prediction as text: ``none higher than baseline where rung == 'tiny-25k'``."""
    where = f" where {entry['where']}" if entry.get("where") else ""
    if entry.get("sign"):
        return f"{entry['arm']} {entry['sign']} than {entry['reference']}{where}"
    of_what = f"{entry['arm']} minus {entry['reference']}{where}"
    return f"{of_what}: {signed(entry['difference'])} ({span(entry['interval'])})"


def predictions_of(trials: ComparedTrials) -> dict[str, list[Prediction]]:
    """Return what came of every prediction that the table brings along, the newest list first, by arm.

    Each stands with one arm that is compared: its own, else its reference, else (both are gone) the first.
    """
    lists = trials.source.attrs.get(PREDICTIONS, ())
    of_arms: dict[str, list[Prediction]] = {arm: [] for arm in trials.others}
    for record in reversed(lists):
        for prediction in _judged(trials, record, stands=record is lists[-1]):
            named = (name for name in (prediction.arm, prediction.reference) if name in of_arms)
            of_arms[next(named, trials.others[0])].append(prediction)
    return of_arms


def _judged(trials: ComparedTrials, record: Record, *, stands: bool) -> Iterator[Prediction]:
    """The predictions of one list; signs are corrected by Holm over it."""
    options, entries = trials.options, record["predictions"]
    seen = [_seen(trials, entry) for entry in entries]
    signs = [paired for (paired, _), entry in zip(seen, entries, strict=True) if entry.get("sign")]
    corrected = iter(holm([paired.p_value if paired else None for paired in signs]))
    for entry, known, (paired, reason) in zip(entries, record["known"], seen, strict=True):
        told = Prediction(
            arm=entry["arm"],
            reference=entry["reference"],
            where=entry.get("where"),
            sign=entry.get("sign"),
            difference=entry.get("difference"),
            interval=tuple(entry["interval"]) if "interval" in entry else None,
            kept_at=record["at"],
            with_result=known.get("with_result", 0),
            stands=stands,
            pairs=len(paired.pairs.complete) if paired else 0,
            seen=paired.estimate.value if paired and paired.estimate else None,
            seen_interval=paired.interval if paired else None,
            p_value=paired.p_value if paired else None,
            p_holm=next(corrected) if entry.get("sign") else None,
            reason=reason,
        )
        told = replace(told, outcome=_outcome(told, 1 - options.level))
        yield replace(told, sentence=_sentence(told, options, len(signs)))


def _seen(trials: ComparedTrials, entry: Record) -> tuple[PairedArm | None, str]:
    """The pairs of the cells that a prediction speaks of, and why nothing can be told of it."""
    arms = (entry["reference"], entry["arm"])
    rows = trials.rows[trials.rows["arm"].isin(arms)].reset_index(drop=True)
    if missing := [arm for arm in reversed(arms) if not (rows["arm"] == arm).any()]:
        return None, f"{missing[0]} has no trial here"
    try:
        meant = select(rows, entry.get("where"))
        paired = ComparedTrials(meant, arms[0], arms[1:], trials.options, trials.source).paired(arms[1])
    except DataError as error:
        return None, str(error)
    return paired, _what_stands_against(paired, is_sign=bool(entry.get("sign")))


def _what_stands_against(paired: PairedArm, *, is_sign: bool) -> str:
    """Why nothing can be told of a prediction, whatever the interval says; empty where nothing does."""
    pairs, estimate = paired.pairs, paired.estimate
    if pairs.is_interim:
        return f"{pairs.progress} have a result"
    if diverged := pairs.names(PairKind.ARM_DIVERGED, PairKind.REFERENCE_DIVERGED, PairKind.BOTH_DIVERGED):
        return f"a side of {plural(len(diverged), 'pair')} diverged"
    if estimate is None:
        return "no pair is complete"
    if pairs.same_trials:
        return "the two arms are the same trials"
    # A censored rate leaves a bound: what is lower than a bound, or a bound that is higher, says nothing.
    if paired.one_sided:
        return f"the loss of {paired.reference if estimate.value < 0 else paired.arm} is only a bound"
    return "there is no noise figure" if is_sign and paired.p_value is None else ""


def _outcome(prediction: Prediction, alpha: float) -> Outcome:
    seen, p_holm = prediction.seen, prediction.p_holm
    if prediction.reason or seen is None:
        return UNTOLD
    if prediction.interval is not None:
        return CAME_TRUE if prediction.interval[0] <= seen <= prediction.interval[1] else OTHERWISE
    if p_holm is None or p_holm >= alpha:
        return UNTOLD
    return CAME_TRUE if prediction.sign == ("lower" if seen < 0 else "higher") else OPPOSITE


def _sentence(prediction: Prediction, options: AnalysisOptions, n_signs: int) -> str:
    known = "before any run it speaks of had a result"
    if prediction.with_result:
        known = f"when {prediction.with_result} of its trials had a result"
    later = "" if prediction.stands else "; a later list stands in its place"
    kept = f"kept {prediction.kept_at[:16].replace('T', ' ')} UTC, {known}{later}"
    where = f" Rows: where {options.where}." if options.where else ""
    seen = prediction.reason
    if prediction.seen is not None:
        interval, p_holm = prediction.seen_interval, prediction.p_holm
        facts = [f"{percent(options.level)} interval {span(interval)}"] if interval else []
        if p_holm is not None:
            facts.append(f"Holm p {p_value(p_holm)} over {plural(n_signs, 'predicted sign')}")
        facts.append(plural(prediction.pairs, "pair"))
        reason = f"; {prediction.reason}" if prediction.reason else ""
        seen = f"{signed(prediction.seen)} ({', '.join(facts)}){reason}"
    return f"Predicted ({kept}): {prediction.words}. Seen: {seen}: {prediction.outcome}.{where}"
