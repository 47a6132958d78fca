"""What a comparison returns: that of each arm by its name, as text, as a table and in a notebook."""

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from scalevec.analysis.comparison.compare import Comparison


class Comparisons(dict[str, "Comparison"]):
    """The comparisons by arm, in the order of the table."""

    @property
    def only(self) -> "Comparison":
        """The comparison of the only arm. Raises :class:`ValueError` where there are several."""
        [comparison] = self.values()
        return comparison

    def to_frame(self) -> pd.DataFrame:
        """A row for each arm: its difference with interval (in the unit of y), verdict and the four lines."""
        return pd.DataFrame([_row(comparison) for comparison in self.values()])

    def summary(self) -> str:
        """The sentence of each arm, a line each."""
        return "\n".join(comparison.sentence for comparison in self.values())

    def __repr__(self) -> str:
        """The same as :meth:`summary`."""
        return self.summary()

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(index=False, float_format="{:.4f}".format))


def _row(comparison: "Comparison") -> dict[str, Any]:
    difference = comparison.loss_difference
    low, high = difference.interval or (None, None)
    lines = {name.replace(" ", "_"): line.text for name, line in comparison.lines.items()}
    shown = {"arm": comparison.arm, "verdict": comparison.verdict, "scope": comparison.scope.text}
    return {
        **shown,
        "difference": difference.mean,
        "low": low,
        "high": high,
        "p_holm": difference.p_holm,
        "pairs": comparison.pairs,
        **lines,
    }
