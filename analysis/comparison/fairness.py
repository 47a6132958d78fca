"""Line 3 of an answer: whether both sides had their learning rates chosen alike, and which are only bounds.

A rate at the edge of its grid (``censored``), and one that was fixed where the other side's was tuned, leave
a loss above what the side can reach: a bound. A cell whose reference is a bound may show that the arm is
worse, never that it is better, and the other way round.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.runs import differing
from scalevec.analysis.data.tidy import OWN_FIELD, BoolArray
from scalevec.analysis.formatting import joined, plural

SIDES = ("reference", "arm")
"""Of a pair, as its columns name them."""
ALIKE = 1.05
"""By such a factor parameters of one rung, or FLOPs, may differ: vectors, or heads, that a change adds."""
CHOSEN = ("tuned", "carried", "censored")
"""The values of ``lr_status`` of a rate that was chosen for the arm."""
FURTHEST_APART = 2.0
"""Carried rates of two arms that differ by more than this factor ask for a check."""
FOURFOLD = 3.9
"""Grids of rates are rounded."""
_Statuses = Mapping[str, "pd.Series[str]"]
"""How the rate of each complete pair's side was found, by side; empty where nothing says it."""


@dataclass(frozen=True)
class Line:
    """A line of an answer: a ``code`` for programs and the ``text`` for people."""

    code: str
    text: str


def recorded(pairs: Pairs, column: str, side: str) -> "pd.Series[str]":
    """``column`` of one side of the complete pairs as text; empty where nothing is recorded."""
    complete, name = pairs.complete, f"{column}_{side}"
    if name not in complete:
        return pd.Series("", complete.index, dtype=object)
    return complete[name].astype(object).where(complete[name].notna(), "").map(str).astype(object)


def bounds_of(pairs: Pairs) -> dict[str, BoolArray]:
    """In which complete pairs the loss of each side is only a bound; one of a cell makes all of it one."""
    status, bounds = {side: recorded(pairs, "lr_status", side) for side in SIDES}, {}
    for side, other in (SIDES, SIDES[::-1]):
        is_fixed = (status[side] == "fixed") & status[other].isin(CHOSEN)
        is_bound = ((status[side] == "censored") | is_fixed).to_numpy(bool)
        bounds[side] = np.isin(pairs.cells, pairs.cells[is_bound])
    return bounds


def fair(pairs: Pairs, reference: str, arm: str, effort: str = "", unsettled: str = "") -> Line:
    """Whether the comparison is fair, by the rates of the complete ``pairs``.

    ``effort`` says of how many trials and rates the tuning was, ``unsettled`` where it chose by chance.
    """
    names = dict(zip(SIDES, (reference, arm), strict=True))
    status = {side: recorded(pairs, "lr_status", side) for side in SIDES}
    seen = {side: set(values) - {""} for side, values in status.items()}
    if not all(seen.values()):
        return Line("unknown", "not known: nothing says how learning rates were chosen")
    told = [*_of_bounds(pairs, names, status), *_of_carried(pairs, names, status)]
    if "shared" in seen["arm"]:
        told.append(Line("shared", f"both at the rate that was tuned for {reference}"))
    if seen["reference"] == seen["arm"] == {"fixed"}:
        text = "the same fixed rate for both" if _equal_rates(pairs) else "both at fixed rates, not tuned"
        told.append(Line("fixed", text))
    told = told or [Line("both_tuned", "both tuned at every size")]
    told += [Line("unsettled", unsettled)] if unsettled else []
    text = "; ".join(line.text for line in told)
    return Line(told[0].code, f"{text} ({effort})" if effort else text)


def _of_bounds(pairs: Pairs, names: Mapping[str, str], status: _Statuses) -> Iterator[Line]:
    """Which side is a bound, where and what that leaves."""
    sizes, bounds = pairs.complete["rung"].astype(str), bounds_of(pairs)
    for side, other, role in (*SIDES, "for"), (*SIDES[::-1], "against"):
        if not bounds[side].any():
            continue
        where = sizes[bounds[side]].unique().tolist()
        is_fixed = set(status[side][bounds[side]]) == {"fixed"}
        what = f"{names[side]} fixed, {names[other]} tuned" if is_fixed else f"{names[side]} only bounded"
        text = f"{what}: no claim {role} {names['arm']}"
        if n_others := sizes.nunique() - len(where):
            judged = f"is judged on the {plural(n_others, 'other size')}"
            text = f"{what} at {joined(where)}: a claim {role} {names['arm']} {judged}"
        yield Line(f"{side}_bounded", text)


def _of_carried(pairs: Pairs, names: Mapping[str, str], status: _Statuses) -> Iterator[Line]:
    """Which rates were carried from smaller sizes, and where they are far apart and no side was checked."""
    is_carried = {side: (values == "carried").to_numpy(bool) for side, values in status.items()}
    either = is_carried["reference"] | is_carried["arm"]
    if not either.any():
        return
    complete = pairs.complete
    rungs: pd.Series[str] = complete["rung"].astype(str)
    of_whom = joined([names[side] for side in SIDES if is_carried[side].any()])
    where = joined(rungs[either].unique().tolist())
    yield Line("carried", f"rates of {of_whom} carried from smaller sizes at {where}")
    checked = [(recorded(pairs, "carried_check", side) == "inside").any() for side in SIDES]
    if "learning_rate_arm" in complete and not all(checked):
        rates = complete["learning_rate_arm"] / complete["learning_rate_reference"]
        apart = (np.abs(np.log(rates.to_numpy(float))) > np.log(FURTHEST_APART)) & either
        if apart.any():
            far = joined(rungs[apart].unique().tolist())
            yield Line("carried", f"carried rates differ more than twofold at {far}")


def _equal_rates(pairs: Pairs) -> bool:
    complete = pairs.complete
    if "learning_rate_arm" not in complete:
        return "learning_rate" in complete
    return bool((complete["learning_rate_arm"] == complete["learning_rate_reference"]).all())


def tuning_of(
    source: pd.DataFrame, pairs: Pairs, names: tuple[str, str], settings: list[str]
) -> tuple[str, str]:
    """The effort of each arm's tuning at the sizes of ``pairs``, and where it chose by chance, as text."""
    if not {"stage", "learning_rate", "arm", "rung"} <= set(source.columns):
        return "", ""
    compared = source[source["arm"].isin(names) & source["rung"].isin(pairs.complete["rung"].unique())]
    return _effort(compared, names), _unsettled(compared, settings)


def _effort(source: pd.DataFrame, names: tuple[str, str]) -> str:
    """How many tuning trials and rates each arm had."""
    by = [column for column in ("rung", "n_tokens", "optimizer", "schedule") if column in source.columns]
    told = []
    for name in names:
        rows = source[(source["stage"] == "tuning") & (source["arm"] == name)]
        if rows.empty:
            continue
        n_rates = rows.groupby(by, dropna=False)["learning_rate"].nunique()
        low, high = int(n_rates.min()), int(n_rates.max())
        rates = plural(high, "rate") if low == high else f"{low} to {high} rates"
        told.append(f"{name}: {rates} a size, {plural(len(rows), 'trial')}")
    return "; ".join(told)


def _unsettled(source: pd.DataFrame, settings: list[str]) -> str:
    """Where a rate :data:`FOURFOLD` from the best is higher by less than two standard errors, as text.

    The noise is that of the compared runs of the same cell, on the validation loss that chose.
    """
    by = [name for name in ("arm", "rung", "n_tokens", *settings) if name in source]
    if not {"loss_validation", "n_params"} <= set(source.columns):
        return ""
    rows = source[source["status"] == "completed"] if "status" in source else source
    numbers = rows[["learning_rate", "loss_validation"]].apply(pd.to_numeric, errors="coerce")
    rows = rows.assign(rate=numbers["learning_rate"], loss_validation=numbers["loss_validation"])
    losses = rows.sort_values("n_params", kind="stable").dropna(subset="loss_validation")
    tuning, compared = losses.query("stage == 'tuning' and rate > 0"), losses.query("stage != 'tuning'")
    curves = tuning.groupby([*by, "rate"], dropna=False, sort=False)["loss_validation"].agg(["mean", "count"])
    noise = compared.groupby(by, dropna=False)["loss_validation"].std().rename("sd").reset_index()
    tried = curves.reset_index().merge(noise, on=by)
    tried = tried.merge(tried.sort_values("mean").drop_duplicates(by), on=by, suffixes=("", "_best"))
    error = tried["sd"] * np.sqrt(1 / tried["count"] + 1 / tried["count_best"])
    is_far = np.abs(np.log(tried["rate"] / tried["rate_best"])) > np.log(FOURFOLD)
    close = tried[is_far & (tried["mean"] - tried["mean_best"] < 2 * error)].drop_duplicates(["arm", "rung"])
    where = [f"{arm} at {joined([*of_arm['rung'].map(str)])}" for arm, of_arm in close.groupby("arm")]
    return f"rates four times apart cannot be told apart: {', '.join(where)}" if where else ""


_NO_FIELDS = (
    *("device", "cpu_model", "cpu_capability", "threads", "gpu", "cuda", "cudnn", "torch_version"),
    *("commit", "local_changes", "arm", "stream", "size", "compute", "lr_status", "carried_check", "sweep"),
)
"""Columns in which arms differ without a script that had to read them."""


def equal_losses(reference: str, arm: str, pairs: Pairs) -> str:
    """What is said where all pairs, several, have equal losses to the last digit; else an empty text."""
    complete = pairs.complete
    if len(complete) < 2 or pairs.same_trials or pairs.differences.any():
        return ""
    sides = [complete.filter(regex=f"_{side}$") for side in SIDES]
    plain = [side.set_axis(side.columns.str.replace(r"_[a-z]+$", "", regex=True), axis=1) for side in sides]
    names = differing(pd.concat(plain), np.tile(np.arange(float(len(complete))), 2))
    fields = [name.removeprefix(OWN_FIELD) for name in names if name not in _NO_FIELDS]
    ignored = f"the script seems to ignore {joined(fields)}" if fields else "they differ in no recorded field"
    return f"arms {reference} and {arm} have equal losses in all {len(complete)} pairs: {ignored}"


def sizes_apart(reference: str, pairs: Pairs) -> list[str]:
    """Return that models of one rung are of sizes, or of compute, that no change of a model explains."""
    complete = pairs.complete
    for name, what, whole in (("size", "parameters", "sizes"), ("flops", "FLOPs", "compute")):
        if f"{name}_arm" not in complete:
            continue
        ratio = complete[f"{name}_arm"].astype(float) / complete[f"{name}_reference"].astype(float)
        apart = np.abs(np.log(ratio)) > np.log(ALIKE)
        if rungs := complete.loc[apart, "rung"].astype(str).unique().tolist():
            factors = f"{ratio[apart].min():.3g} to {ratio[apart].max():.3g} times the {what}"
            where = f"{reference} at {joined(rungs)}"
            return [f"it has {factors} of {where}: the difference holds that of the {whole}"]
    return []
