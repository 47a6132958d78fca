"""What the laws of the smaller rungs say of the next one: an entry for ``compare: predict`` of a sweep.

    python tools/predict_rung.py trend unified tiny-310k

The sweep is one of ``sweeps/small`` whose rungs below that one are finished and kept (``make paper-trend
UNTIL=tiny-150k``). The prediction is that of the hold-out of a comparison: the difference of the laws of both
arms, fitted to the rungs below. Its interval is one of the mean that will be seen: the noise of those rungs
through the laws, that of the rung's own seeds (as many, and as noisy, as those of the largest rung below),
and the test split's error.
"""

import argparse
from typing import TYPE_CHECKING, Any

import paper

from scalevec import analysis, sweeps
from scalevec.analysis.fits.arm_data import with_default_law
from scalevec.analysis.options import AnalysisOptions

if TYPE_CHECKING:
    import pandas as pd

IDENTITIES = ("trial_id", "stream", "cluster")
"""Columns by which trials are told apart."""


def main() -> None:
    """Print the entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("sweep", "arm", "rung"):
        parser.add_argument(name)
    asked = parser.parse_args()
    sweep = sweeps.load(paper.SMALL / f"{asked.sweep}.yaml")
    rows = analysis.read_table(paper.KEPT / asked.sweep / "results.csv")
    held = prediction(rows, asked.arm, asked.rung, sweep.reference, sweep.compare.options())
    if not held.get("interval"):
        parser.error(f"nothing can be predicted of {asked.rung}: {held.get('reason', 'no interval')}")
    low, high = (round(end, 4) for end in held["interval"])
    where = f"\"rung == '{asked.rung}'\""
    value = f"difference: {held['predicted']:.4f}, interval: [{low}, {high}]"
    print(f"- {{arm: {asked.arm}, where: {where}, {value}}}")


def prediction(
    rows: "pd.DataFrame", arm: str, rung: str, reference: str, options: AnalysisOptions | None = None
) -> dict[str, Any]:
    """The hold-out of ``arm`` at ``rung``, by the rungs below it alone; ``observed`` means nothing."""
    compared = with_rung_expected(rows[rows["stage"] == "comparison"], rung)
    compared = compared[compared["arm"].isin([arm, reference])].reset_index(drop=True)
    # The law is chosen without the rows that stand in for the rung.
    options = with_default_law(options or AnalysisOptions(), compared[compared["rung"] != rung])
    return analysis.compare(compared, reference, options)[arm].hold_out


def with_rung_expected(rows: "pd.DataFrame", rung: str) -> "pd.DataFrame":
    """The finished rows below ``rung``, and those of the largest once more as if they were of ``rung``."""
    import pandas as pd

    planned = rows[rows["rung"] == rung]
    if planned.empty:
        raise SystemExit(f"no trial is planned at {rung!r}; rungs: {', '.join(rows['rung'].unique())}")
    size = planned.iloc[0]
    done = rows[(rows["n_params"] < size["n_params"]) & (rows["status"] == "completed")]
    largest = done[done["n_params"] == done["n_params"].max()]
    new = largest.assign(rung=rung, n_params=size["n_params"], n_tokens=size["n_tokens"])
    for name in IDENTITIES:
        new[name] = new[name].astype(str) + " expected"
    return pd.concat([done, new], ignore_index=True)


if __name__ == "__main__":
    main()
