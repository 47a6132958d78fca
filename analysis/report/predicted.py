"""What was predicted beside what was seen: a table for the page, lines for a terminal."""

from collections import Counter
from collections.abc import Sequence

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.predictions import Prediction, known_words
from scalevec.analysis.formatting import p_value, plural, signed, span
from scalevec.analysis.tables.content import Table

_COLUMNS = ("predicted", "kept", "difference seen", "interval", "Holm p", "pairs", "outcome")
_NOTE = (
    "Kept when the sweep first ran with the list. Holm p: two-sided, over the signs of a list. A predicted "
    "sign came true where that p says that the difference is not zero and its sign is the predicted one; a "
    "predicted difference where the mean lies in its interval."
)


def predicted_table(comparisons: Sequence[Comparison]) -> Table | None:
    """A row for each prediction; None where there is none. Lists that were replaced stand below."""
    predictions = [prediction for comparison in comparisons for prediction in comparison.predictions]
    if not predictions:
        return None
    predictions.sort(key=lambda prediction: not prediction.stands)
    numeric = tuple(name in ("difference seen", "interval", "Holm p", "pairs") for name in _COLUMNS)
    return Table("Predicted and seen", _COLUMNS, tuple(map(_cells, predictions)), numeric, (_NOTE,))


def _cells(prediction: Prediction) -> tuple[str, ...]:
    outcome = f"{prediction.outcome}: {prediction.reason}" if prediction.reason else prediction.outcome
    replaced = "" if prediction.stands else ", replaced since"
    return (
        prediction.words,
        f"{prediction.kept_on}, {known_words(prediction)}{replaced}",
        "" if prediction.seen is None else signed(prediction.seen),
        span(prediction.seen_interval) if prediction.seen_interval else "",
        "" if prediction.p_holm is None else p_value(prediction.p_holm),
        str(prediction.pairs),
        outcome,
    )


def predictions_summary(comparisons: Sequence[Comparison]) -> list[str]:
    """How many predictions that stand came out how, as one line; none without any."""
    outcomes = Counter(
        prediction.outcome
        for comparison in comparisons
        for prediction in comparison.predictions
        if prediction.stands
    )
    if not outcomes:
        return []
    shown = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
    return [f"{plural(outcomes.total(), 'prediction')}: {shown}."]
