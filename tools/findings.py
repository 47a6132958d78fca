"""The table of docs/findings.md: each claim of the paper beside what the kept small sweeps say of it.

A claim is an entry of claims.yaml; the numbers seen, the verdict and the word for it are read from results.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import paper
import yaml

from scalevec import analysis, sweeps
from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.predictions import CAME_TRUE
from scalevec.analysis.comparison.predictions import OPPOSITE as CAME_OPPOSITE
from scalevec.analysis.comparison.predictions import OTHERWISE as CAME_OTHERWISE
from scalevec.analysis.formatting import count
from scalevec.results.sweep_folder import SweepFolder

if TYPE_CHECKING:
    import pandas as pd

ENTRIES = Path(__file__).with_name("claims.yaml")
Interval = tuple[float, float]
SHOWS, OPPOSITE, DOES_NOT, UNSEEN = "shows", "shows the opposite", "does not", "cannot be seen"
NOT_RUN, UNFINISHED = "not run yet", "not finished"
VERSION = 3
"""Identity version of kept results that are evidence; in older ones the same names mean other models."""
AS_CLAIMED = {"lower": "better", "higher": "worse"}
GRADIENT_ALONE = 0.999
"""A median cosine above it is a movement as predicted."""


@dataclass(frozen=True)
class Claim:
    """One claim of the paper and where it is looked for.

    ``effect`` is the paper's in the unit of what is read, the smallest where there are several, None where it
    gives none for this design. ``reference`` is the arm compared with, left out where it is the sweep's own.
    """

    claim: str
    paper: str
    sweep: str
    arm: str = "unified"
    reads: Literal["difference", "multiplier", "predictions", "growth", "time", "memory", "movement"] = (
        "difference"
    )
    effect: float | None = None
    expects: Literal["lower", "higher"] = "lower"
    reference: str = ""
    where: str | None = None


@dataclass(frozen=True)
class Reading:
    """What kept results say of a claim, as the cells of its row."""

    sizes: str = "-"
    seen: str = "-"
    verdict: str = "-"
    scaling: str = "-"
    shown: str = NOT_RUN


@cache
def claims() -> tuple[Claim, ...]:
    """The claims of claims.yaml."""
    entries = yaml.safe_load(ENTRIES.read_text(encoding="utf-8"))
    return tuple(Claim(**entry) for entry in entries)


def table() -> str:
    """The claims with what is seen of each, as Markdown."""
    header = ("claim", "the paper", "sizes here", "seen here", "verdict", "scaling", "finding", "sweep")
    return _markdown(header, [_row(claim) for claim in claims()])


def _row(claim: Claim) -> tuple[str, ...]:
    seen, sweep = reading(claim), claim.sweep
    target = f"paper-{sweep}" if sweep in paper.LONG else f"paper-small-{sweep}"
    shown, command = f"**{seen.shown}**", f"`{sweep}`, `make {target}`"
    return (claim.claim, claim.paper, seen.sizes, seen.seen, seen.verdict, seen.scaling, shown, command)


def reading(claim: Claim) -> Reading:
    """What the kept results say of ``claim``."""
    return READINGS[claim.reads](claim) if is_evidence(claim.sweep) else Reading()


def is_evidence(sweep: str) -> bool:
    """Whether results of ``sweep`` are kept, all of them of :data:`VERSION`."""
    if not (paper.KEPT / sweep / "results.csv").is_file():
        return False
    return set(kept_rows(sweep)["identity_version"]) == {VERSION}


@cache
def kept_rows(sweep: str) -> "pd.DataFrame":
    """The kept rows of ``sweep`` with what was predicted of them."""
    rows = analysis.read_table(paper.KEPT / sweep / "results.csv")
    rows.attrs["predictions"] = SweepFolder(paper.KEPT / sweep).predictions()
    return rows


def question(sweep: str) -> dict[str, Any]:
    """The reference and options of the sweep's file."""
    asked = sweeps.load(paper.SMALL / f"{sweep}.yaml").compare
    return {"reference": asked.reference, "options": asked.options()}


@cache
def compared(sweep: str, where: str | None = None, reference: str = "") -> analysis.Comparisons:
    """The comparisons of ``sweep`` by arm, with ``reference`` or, without one, the sweep's own."""
    asked = question(sweep) | ({"reference": reference} if reference else {})
    return analysis.compare(kept_rows(sweep), **asked, where=where)


def _difference(claim: Claim) -> Reading:
    comparison = compared(claim.sweep, claim.where, claim.reference).get(claim.arm)
    if comparison is None:
        return Reading()
    difference = comparison.loss_difference
    seen = _with_interval(difference.mean, difference.interval, signed=True)
    return _reading(claim, comparison, seen, shown(comparison.verdict, claim, difference.interval))


def shown(verdict: str, claim: Claim, interval: Interval | None) -> str:
    """The word for a verdict on a difference: the claim's, its opposite, or why neither."""
    if verdict in ("better", "worse"):
        return SHOWS if verdict == AS_CLAIMED[claim.expects] else OPPOSITE
    if verdict == "incomplete":
        return UNFINISHED
    return DOES_NOT if verdict == "equivalent" or _falls_short(interval, claim.effect) else UNSEEN


def _falls_short(interval: Interval | None, effect: float | None) -> bool:
    """Whether the interval excludes an effect as large as the paper's, on the side of none at all."""
    if interval is None or effect is None:
        return False
    return interval[0] > effect if effect < 0 else interval[1] < effect


def _multiplier(claim: Claim) -> Reading:
    comparison = compared(claim.sweep, claim.where).get(claim.arm)
    if comparison is None:
        return Reading()
    if not comparison.compute_multipliers:
        word = saved(comparison.verdict, claim, None)
        return _reading(claim, comparison, f"withheld: {comparison.withheld}", word)
    largest = comparison.compute_multipliers[0]
    word = saved(comparison.verdict, claim, largest.interval)
    return _reading(claim, comparison, _with_interval(largest.estimate, largest.interval), word)


def saved(verdict: str, claim: Claim, interval: Interval | None) -> str:
    """The word for a multiplier: that of the claim, or its opposite, only with the verdict."""
    if verdict == "incomplete":
        return UNFINISHED
    if interval and interval[0] > 1:
        return SHOWS if verdict == "better" else UNSEEN
    if interval and interval[1] < 1 and verdict == "worse":
        return OPPOSITE
    return DOES_NOT if _falls_short(interval, claim.effect) else UNSEEN


def _growth(claim: Claim) -> Reading:
    comparison = compared(claim.sweep, claim.where)[claim.arm]
    word = grown(comparison.verdict, comparison.with_scale.code)
    factor = comparison.trend["multiplier_per_decade"] or {}
    seen = _with_interval(factor.get("estimate"), factor.get("interval"))
    shown = f"{seen} per decade of compute" if factor else comparison.with_scale.text
    return _reading(claim, comparison, shown, word)


def grown(verdict: str, scaling: str) -> str:
    """The word for "a saving holds or grows", which takes a saving."""
    if verdict == "incomplete":
        return UNFINISHED
    if scaling in ("grows", "constant"):
        return SHOWS if verdict == "better" else UNSEEN
    return OPPOSITE if scaling in ("shrinks", "reverses") else UNSEEN


def _predictions(claim: Claim) -> Reading:
    held = [
        prediction
        for comparison in compared(claim.sweep).values()
        for prediction in comparison.predictions
        if prediction.stands and (prediction.arm, prediction.reference) == (claim.arm, claim.reference)
    ]
    if not held:
        return Reading()
    outcomes = [prediction.outcome for prediction in held]
    seen = "; ".join(_with_interval(each.seen, each.seen_interval, signed=True) for each in held)
    return Reading(_sizes(claim), seen, "; ".join(outcomes), "-", came(outcomes))


def came(outcomes: Sequence[str]) -> str:
    """The word for what came of the predictions of a claim, one at each size."""
    words = {CAME_TRUE: SHOWS, CAME_OPPOSITE: OPPOSITE, CAME_OTHERWISE: DOES_NOT}
    times = {word: outcomes.count(outcome) for outcome, word in words.items() if outcome in outcomes}
    if len(outcomes) in times.values():
        return next(iter(times))
    return ", ".join(f"{word} at {n} of {len(outcomes)} sizes" for word, n in times.items()) or UNSEEN


def _cost(claim: Claim) -> Reading:
    """The median ratio of ``step_time`` or ``allocated_memory`` with its range over pairs."""
    name = {"time": "step_time_ratio", "memory": "allocated_memory_ratio"}[claim.reads]
    rows = analysis.table(kept_rows(claim.sweep), "overhead", **question(claim.sweep)).records
    (record,) = [row for row in rows if row["arm"] == claim.arm]
    span = (record[f"{name}_least"], record[f"{name}_largest"])
    word = UNSEEN
    if claim.effect is not None:
        word = SHOWS if span[1] <= claim.effect else DOES_NOT if span[0] > claim.effect else UNSEEN
    return Reading(_sizes(claim), _with_interval(record[name], span), "range of the pairs", "-", word)


def _movement(claim: Claim) -> Reading:
    """How the effective matrices moved, against the prediction and against the plain gradient."""
    path = paper.KEPT / claim.sweep / "theory.json"
    if not path.is_file():
        return Reading()
    rows = [row for row in json.loads(path.read_text(encoding="utf-8")) if row["arm"] != "none"]
    flow = [row for row in rows if row["optimizer"].startswith("sgd")]
    others = [row for row in rows if row not in flow]
    seen = f"cosine to the movement, gradient descent: {_cosines(flow)}; AdamW, Muon: {_cosines(others)}"
    word = SHOWS if min(row["cosine_predicted"] for row in flow) > GRADIENT_ALONE else DOES_NOT
    return Reading(_sizes(claim), seen, "medians", "-", word)


def _cosines(rows: list[dict[str, Any]]) -> str:
    predicted, gradient = (
        " to ".join(dict.fromkeys(f"{end(row[name] for row in rows):.3f}" for end in (min, max)))
        for name in ("cosine_predicted", "cosine_gradient")
    )
    return f"{predicted} (with the gradient alone {gradient})"


READINGS = {
    "difference": _difference,
    "multiplier": _multiplier,
    "predictions": _predictions,
    "growth": _growth,
    "time": _cost,
    "memory": _cost,
    "movement": _movement,
}


def sentences(sweep: str) -> Iterator[str]:
    """The verdicts on the arms of the sweep's claims, and what was predicted beside what was seen.

    Where all claims of an arm are about some cells or another reference, a verdict over all cells would be
    another question's: those about some cells have one each.
    """
    for claim in claims() if is_evidence(sweep) else ():
        if claim.sweep == sweep and claim.where and not claim.reference and claim.reads == "difference":
            comparison = compared(sweep, claim.where)[claim.arm]
            yield f"Where `{claim.where}`: {comparison.sentence} With scale: {comparison.with_scale.text}."
    whole = [claim for claim in claims() if claim.sweep == sweep and not (claim.where or claim.reference)]
    judged = {claim.arm for claim in whole}
    for comparison in compared(sweep).values() if is_evidence(sweep) else ():
        if comparison.arm in judged:
            yield f"{comparison.sentence} With scale: {comparison.with_scale.text}."
        yield from (prediction.sentence for prediction in comparison.predictions)


def _reading(claim: Claim, comparison: Comparison, seen: str, word: str) -> Reading:
    scaling, scope = comparison.with_scale.code.replace("_", " "), comparison.scope
    verdict = f"{comparison.verdict} {scope.text}" if scope.code == "up_to" else comparison.verdict
    return Reading(_sizes(claim), seen, verdict, scaling, word)


def _rungs(comparison: Comparison) -> set[int]:
    return {cell.n_params for cell in comparison.by_rung}


def _sizes(claim: Claim) -> str:
    """The sizes at which the arm was compared."""
    rows = analysis.select(kept_rows(claim.sweep), claim.where)
    done = rows[
        (rows["arm"] == claim.arm) & (rows["stage"] == "comparison") & (rows["status"] == "completed")
    ]
    return ", ".join(count(float(f"{n:.2g}")) for n in sorted(done["n_params"].unique()))


def _with_interval(value: float | None, interval: Interval | None, *, signed: bool = False) -> str:
    if value is None:
        return "-"
    form = "+.3f" if signed else ".2f"
    ends = f" [{interval[0]:{form}}, {interval[1]:{form}}]" if interval else ""
    return f"{value:{form}}{ends}".replace("-", "−")


def _markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ("---",) * len(header), *rows])
