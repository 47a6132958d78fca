"""The sentences and tables of the page: how far a sweep is, predictions, trials, pairs, costs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.predictions import Prediction, known_words
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.pairs import PairKind, varying
from scalevec.analysis.data.runs import HAS_RESULT
from scalevec.analysis.data.tidy import comparison_rows
from scalevec.analysis.fits.result import Fit
from scalevec.analysis.formatting import count, few, p_value, plural, shortened, signed, span
from scalevec.analysis.report.text import point_cells, point_columns
from scalevec.analysis.tables.content import Table
from scalevec.analysis.tables.notes import remark_notes

MOST_SEEDS = 20


def plan_state(
    comparisons: Sequence[Comparison], interim: Sequence[str], by_laws: Sequence[Comparison] = ()
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


_PREDICTED = ("predicted", "kept", "difference seen", "interval", "Holm p", "pairs", "outcome")
_PREDICTED_NOTE = (
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
    numeric = tuple(name in ("difference seen", "interval", "Holm p", "pairs") for name in _PREDICTED)
    return Table(
        "Predicted and seen",
        _PREDICTED,
        tuple(map(_predicted_cells, predictions)),
        numeric,
        (_PREDICTED_NOTE,),
    )


def _predicted_cells(prediction: Prediction) -> tuple[str, ...]:
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


def along_the_line(comparisons: Sequence[Comparison]) -> Table:
    """The difference of the laws at each point of the line, a row per arm and point."""
    columns = ("arm", "N", "tokens", "difference of the laws", "interval")
    rows = tuple(
        (
            comparison.arm,
            count(point.n_params),
            count(point.n_tokens),
            signed(point.mean),
            span(point.interval) if point.interval else "none",
        )
        for comparison in comparisons
        for point in comparison.by_rung
    )
    notes = ("The intervals of single points are descriptive: no verdict follows from one of them.",)
    return Table("Along the line", columns, rows, (False, True, True, True, True), notes)


def ahead_table(fits: Sequence[Fit]) -> Table | None:
    """The laws at the largest compute and beyond; None where no law has a larger compute."""
    shown = [(fit, point) for fit in fits for point in fit.ahead()]
    if not shown:
        return None
    columns = ("arm", *point_columns(shown[0][0]))
    rows = tuple((fit.arm, *point_cells(point)) for fit, point in shown)
    note = (
        "At the tokens per parameter of the largest run. The interval of the law has the runs' noise and the "
        "law's own error, by its rolling hold-outs and by the other laws that fit; that of one run adds a "
        "run's noise."
    )
    reasons = remark_notes((str(point["note"]), fit.arm) for fit, point in shown if point["note"])
    return Table("Predictions", columns, rows, (False, False, True, True, True, True), (note, *reasons))


_TRIAL = (
    *("trial_id", "arm", "stage", "rung", "n_params", "n_tokens", "seed", "learning_rate", "lr_status"),
    *("status", "cause", "loss", "loss_validation", "flops", "wall_s", "planned_s", "device"),
)
"""What CSV holds of a trial, as far as it is known; the settings that vary stand after the seed."""
_DIGITS = 12
"""Of a trial's id on the page."""


def trials_table(table: pd.DataFrame, trials: ComparedTrials) -> Table:
    """Return a row for each trial of the checked ``table``, those of tuning too."""
    settings = trials.varying_settings
    names = [*_TRIAL[:7], *(name for name in settings if name not in _TRIAL), *_TRIAL[7:]]
    records = _records(table, [name for name in names if name in table.columns])
    shown = [name for name in _SHOWN if any(record.get(name) not in (None, "") for record in records)]
    shown[shown.index("seed") + 1 : shown.index("seed") + 1] = settings
    shown = list(dict.fromkeys(shown))
    columns = tuple(_SHOWN.get(name, name.replace("_", " ")) for name in shown)
    rows = tuple(tuple(_cell(name, record.get(name)) for name in shown) for record in records)
    numeric = tuple(name in _NUMBERS for name in shown)
    return Table("Trials", columns, rows, numeric, records=tuple(records))


_SHOWN = {
    "trial_id": "trial",
    "arm": "arm",
    "stage": "stage",
    "rung": "rung",
    "n_tokens": "tokens",
    "seed": "seed",
    "learning_rate": "learning rate",
    "lr_status": "rate is",
    "status": "status",
    "cause": "cause",
    "loss": "loss",
    "wall_s": "hours",
}
"""The columns on the page with their headings."""
_NUMBERS = ("n_tokens", "seed", "learning_rate", "loss", "wall_s")


def _records(table: pd.DataFrame, names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows as plain values, None where there is none."""
    chosen = table[list(names)].astype(object)
    values = chosen.where(chosen.notna(), None).to_numpy(object)
    return [dict(zip(names, row, strict=True)) for row in values]


def _cell(name: str, value: Any) -> str:
    """A value with the digits that a reader needs."""
    if value is None or value == "":
        return ""
    if name == "trial_id":
        return str(value)[:_DIGITS]
    forms: Mapping[str, Any] = {
        "n_tokens": count,
        "learning_rate": "{:.3g}".format,
        "loss": "{:.4f}".format,
        "wall_s": lambda seconds: f"{seconds / 3600:.3g}",
    }
    return str(forms.get(name, str)(value))


def pair_records(trials: ComparedTrials) -> list[dict[str, Any]]:
    """Every pair of every arm with the reference, complete or not; a loss only where its trial completed."""
    records = []
    for arm in trials.others:
        paired = trials.paired(arm)
        pairs = paired.beyond or paired.pairs
        table = pairs.table
        sides = {
            side: table[f"loss_{side}"].where(table[f"status_{side}"] == "completed")
            for side in ("reference", "arm")
        }
        ids = [f"trial_id_{side}" for side in sides if f"trial_id_{side}" in table]
        rows = table[["rung", "n_tokens", *varying(table, pairs.settings), "seed", *ids]].assign(
            **{f"loss_{side}": losses for side, losses in sides.items()},
            difference=(sides["arm"] - sides["reference"]).where(table["kind"] == PairKind.COMPLETE),
            pair=table["kind"],
        )
        records += [{"arm": arm, **record} for record in _records(rows, list(rows.columns))]
    return records


def costs(table: pd.DataFrame) -> Table | None:
    """What each rung and stage of the checked ``table`` has cost, and what is left of its plan.

    None where nothing of it is recorded.
    """
    if not {"wall_s", "planned_s", "flops", "flops_counted"} & set(table.columns):
        return None
    rows = (
        table.drop_duplicates("trial_id") if "trial_id" in table.columns else table
    )  # arms may share trials
    groups = [(str(rung), of_rung) for (_, rung), of_rung in rows.groupby(["n_params", "rung"], sort=True)]
    totals = [(str(stage), of_stage) for stage, of_stage in rows.groupby("stage", sort=False)]
    totals = [*(totals if len(totals) > 1 else []), ("all", rows)]
    body = [(name, *(cell(of_group) for cell in _COSTS.values())) for name, of_group in [*groups, *totals]]
    known = [0, *(at for at in range(1, len(_COSTS) + 1) if any(row[at] for row in body))]
    names = ("of", *_COSTS)
    return Table(
        "Cost",
        tuple(names[at] for at in known),
        tuple(tuple(row[at] for at in known) for row in body),
        (False, *(True for _ in known[1:])),
        (_COST_NOTE,),
        totals=frozenset(range(len(groups), len(body))),
    )


_COST_NOTE = (
    "All trials, those of tuning too. Hours: training and evaluation, summed over the trials with a result; "
    "device-hours: times the GPUs of a trial, or its CPU threads. Step time, tokens/s and MFU (the counted "
    "FLOPs of the median step over the device's peak): medians over the trials. Memory: the most of any."
)


def _done(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["status"].isin(HAS_RESULT)]


def _sum(values: "pd.Series[float] | None", text: Callable[[float], str]) -> str:
    return "" if values is None or values.isna().all() else text(float(values.sum()))


def _measured_s(rows: pd.DataFrame) -> "pd.Series[float] | None":
    """Seconds of training and of evaluation."""
    if "wall_s" not in rows:
        return None
    return rows["wall_s"] + (rows["evaluation_s"].fillna(0.0) if "evaluation_s" in rows.columns else 0.0)


def _device_s(rows: pd.DataFrame) -> "pd.Series[float] | None":
    """The same times the GPUs of each trial, or the threads of its processes; one where none is recorded."""
    measured = _measured_s(rows)
    if measured is None:
        return None
    if "world_size" in rows:
        measured = measured * rows["world_size"].astype(float).fillna(1.0)
    if "threads" in rows and "device" in rows:
        threads = pd.to_numeric(rows["threads"], errors="coerce").fillna(1.0)
        measured = measured * threads.where(rows["device"] == "cpu", 1.0)
    return measured


def _over_plan(rows: pd.DataFrame) -> str:
    if "planned_s" not in rows:
        return ""
    both = rows[rows["planned_s"].notna()]
    measured, planned = _measured_s(both), float(both["planned_s"].sum())
    return f"{float(measured.sum()) / planned:.2f}" if measured is not None and planned > 0 else ""


def _flops(rows: pd.DataFrame) -> str:
    counted = rows.get("flops_counted")
    chosen = rows.get("flops") if counted is None or counted.isna().all() else counted
    return _sum(chosen, "{:.2e}".format)


def _median(name: str, text: Callable[[float], str]) -> Callable[[pd.DataFrame], str]:
    def cell(rows: pd.DataFrame) -> str:
        known = _done(rows)[name].dropna() if name in rows else ()
        return text(float(np.median(known))) if len(known) else ""

    return cell


def _most_memory(rows: pd.DataFrame) -> str:
    most = rows["peak_memory_bytes"].max() if "peak_memory_bytes" in rows else np.nan
    return "" if pd.isna(most) else f"{float(most) / 1e9:.3g}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.3g}"


def _left(rows: pd.DataFrame) -> str:
    return _sum(rows[~rows["status"].isin(HAS_RESULT)].get("planned_s"), _hours)


_COSTS: dict[str, Callable[[pd.DataFrame], str]] = {
    "with a result": lambda rows: f"{len(_done(rows))} of {len(rows)}",
    "spent, h": lambda rows: _sum(_measured_s(_done(rows)), _hours),
    "device-hours": lambda rows: _sum(_device_s(_done(rows)), _hours),
    "spent / planned": lambda rows: _over_plan(_done(rows)),
    "left by the plan, h": _left,
    "FLOPs spent": lambda rows: _flops(_done(rows)),
    "step, ms": _median("step_s_median", lambda seconds: f"{seconds * 1e3:.3g}"),
    "tokens/s": _median("tokens_per_s", count),
    "MFU": _median("mfu", lambda share: f"{share:.0%}"),
    "peak memory, GB": _most_memory,
}
"""What is shown of the trials of a group, by its heading; a column that is blank everywhere is left out."""


def comparison_trials(table: pd.DataFrame) -> str:
    """How many comparison trials of the checked ``table`` are in each state, as a sentence."""
    statuses = comparison_rows(table)["status"].value_counts(sort=False)
    return f"Comparison trials: {', '.join(f'{n} {status}' for status, n in statuses.items())}."


def repeated_data(table: pd.DataFrame) -> str:
    """At which rungs trials saw data again, as a sentence; empty where none did."""
    if "epochs" not in table.columns or not (table["epochs"] > 1).any():
        return ""
    repeated = table[table["epochs"] > 1].sort_values("n_params", kind="stable")
    rungs = ", ".join(dict.fromkeys(repeated["rung"]))
    most = repeated["epochs"].max()
    return f"Data were repeated at {rungs} (up to {most:.2f} epochs): not the losses of fresh data."
