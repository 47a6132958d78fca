"""How far a sweep is: interim, at a declared look, complete, or past its plan; and the seeds it has."""

from collections.abc import Sequence

import pandas as pd

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.law_comparison import LawComparison
from scalevec.analysis.formatting import few, plural, shortened

MOST_SEEDS = 20


def plan_state(
    comparisons: Sequence[Comparison], interim: Sequence[str], by_laws: Sequence[LawComparison] = ()
) -> list[str]:
    """Return the state as sentences, the first of which begins with one word for it."""
    if not comparisons:
        without = "No pairs: the arms are compared by the laws fitted to them."
        return [without if by_laws else "One arm: nothing is compared with it."]
    by_pairs = _of_pairs(comparisons, interim)
    unpaired = few([comparison.arm for comparison in by_laws])
    return [*by_pairs, f"Without pairs, compared by laws: {unpaired}."] if by_laws else by_pairs


def _of_pairs(comparisons: Sequence[Comparison], interim: Sequence[str]) -> list[str]:
    looks = list(dict.fromkeys(text for text in map(_look, comparisons) if text))
    if interim:
        begun = f"Interim: {'; '.join(interim)} have a result."
        return [begun, *looks, "No interval, p-value or verdict before every planned pair has one."]
    after = [c for c in comparisons if c.plan["exploratory"]]
    pairs = sum(c.plan["pairs"] for c in comparisons)
    done = f"every planned pair has a result ({plural(pairs, 'pair')})."
    if after:
        shown = few([f"{c.arm} {c.plan['exploratory']['pairs'] - c.pairs} more pairs" for c in after])
        return [f"After the plan: {done}", *looks, f"Added after the verdict, exploratory: {shown}."]
    return [f"Complete: {done}" if pairs else "No pair is planned.", *looks]


def _look(comparison: Comparison) -> str:
    """The declared look that an arm stands at, and the next one; empty where none was declared or reached."""
    plan = comparison.plan
    following = f"next look at {plan['next_look']} seeds" if plan["next_look"] else ""
    if not plan["look"]:
        return f"{comparison.arm}: {following}." if following else ""
    number, of_all = plan["looks"].index(plan["look"]) + 1, len(plan["looks"])
    end = following or {"futility": "ended for futility"}.get(plan["ends"] or "", "ended")
    return f"{comparison.arm}: look {number} of {of_all} ({plan['look']} seeds), {end}."


def seeds_by_stage(table: pd.DataFrame) -> list[str]:
    """Return the seeds of each stage of the checked ``table``, by rung where rungs differ in them."""
    lines = []
    for stage, rows in table.groupby("stage", sort=True):
        of_rungs = {str(rung): _seeds(of_rung) for rung, of_rung in rows.groupby("rung", sort=False)}
        if len(set(of_rungs.values())) == 1:
            shown = f"{next(iter(of_rungs.values()))} (every rung)"
        else:
            shown = "; ".join(f"{rung}: {seeds}" for rung, seeds in of_rungs.items())
        lines.append(f"Seeds of {'tuning' if stage == 'tuning' else 'the comparison'}: {shown}.")
    return lines


def _seeds(rows: pd.DataFrame) -> str:
    return shortened(sorted(rows["seed"].dropna().unique().tolist()), MOST_SEEDS)
