"""What the page says beside the answers: how far a sweep is, its trials, what they cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.runs import HAS_RESULT
from scalevec.analysis.data.tidy import comparison_rows
from scalevec.analysis.figures.tuning_bowls import setting_text
from scalevec.analysis.formatting import count, few, joined, plural, shortened
from scalevec.analysis.report.text import heading, verdict_rows
from scalevec.analysis.tables.render import Table
from scalevec.analysis.tables.strategies import Fields, strategies

MOST_SEEDS = 20
MOST_NAMED = 3
"""Arms that are explained at the top of the page."""


def plan_state(
    comparisons: Sequence[Comparison], interim: Sequence[str], by_laws: Sequence[Comparison] = ()
) -> list[str]:
    """What to know of the plan before the answers, a sentence each; none of a plan that is done."""
    if not comparisons:
        without = "No pairs: the arms are compared by the laws fitted to them."
        return [without if by_laws else "One arm: nothing is compared with it."]
    told = []
    for plan, arm in ((comparison.plan, comparison.arm) for comparison in comparisons):
        if plan["look"]:
            told.append(f"{arm}: look at {plan['look']} seeds of {', '.join(map(str, plan['looks']))}.")
        if plan["next_look"]:
            told.append(f"{arm}: next look at {plan['next_look']} seeds.")
        if plan["exploratory"]:
            told.append(f"{arm}: pairs were added after its verdict; their mean is exploratory.")
    waits = f"Interim: {'; '.join(interim)} have a result; no verdict before every one has."
    without = f"Compared by laws, without pairs: {few([c.arm for c in by_laws])}."
    return [*[waits] * bool(interim), *told, *[without] * bool(by_laws)]


def lead(trials: ComparedTrials, comparisons: Sequence[Comparison], text: str = "") -> list[str]:
    """What was changed, on what, and the answer: a sentence each, which can be read alone.

    ``text`` is what was trained on, where that is known.
    """
    rows = trials.completed
    if not len(rows) or not comparisons:
        return []
    arms, fields = [each.arm for each in comparisons], strategies(trials)
    few_arms = arms if len(arms) <= MOST_NAMED else []
    changed = f"{joined(few_arms) if few_arms else f'{len(arms)} arms'} against {trials.reference}"
    changes = _changes(fields, few_arms, trials.reference) if fields else []
    sizes = f"{_range(rows['n_params'])} parameters and {_range(rows['n_tokens'])} tokens"
    spent = _sum(rows, "{:.3g}", 3600, "wall_s", "evaluation_s")
    cost = f", {spent} h of training in all" if spent else ""
    verdicts = few([f"{each.arm} is {each.interim or each.verdict}" for each in comparisons])
    return [
        f"{changed}{': ' if changes else ''}{'; '.join(changes)}.",
        f"{plural(len(rows), 'run')} of {sizes}{f' of {text}' if text else ''}{cost}.",
        f"{verdicts}.",
    ]


def _changes(fields: Mapping[str, Fields], arms: Sequence[str], reference: str) -> list[str]:
    """In which fields of its scale vectors each arm differs from the reference, with its values."""
    told, theirs = list[str](), fields[reference]
    for arm in arms:
        values = [
            f"{name.split('_')[1]} {value}" for name, value in fields[arm].items() if value != theirs[name]
        ]
        told += [f"{arm} has {joined(values)}"] if values else []
    return told


def _range(counts: pd.Series) -> str:
    low, high = count(counts.min()), count(counts.max())
    return low if low == high else f"{low} to {high}"


def answers(comparisons: Sequence[Comparison]) -> Table:
    """The verdicts at a glance, a row for each arm."""
    headings, *rows = verdict_rows(comparisons)
    numeric = (False, True, True, True, False, False)
    return Table("Answers at a glance", headings, tuple(rows), numeric, (f"{heading(comparisons[0])}.",))


def told_of_trials(table: pd.DataFrame) -> list[str]:
    """The states, the seeds and repeated data of the trials of the checked ``table``, a sentence each."""
    statuses = comparison_rows(table)["status"].value_counts(sort=False)
    told = [f"Comparison trials: {', '.join(f'{n} {status}' for status, n in statuses.items())}."]
    for stage, rows in table.groupby("stage", sort=True):
        seeds = shortened(sorted(rows["seed"].dropna().unique().tolist()), MOST_SEEDS)
        told.append(f"Seeds of {'tuning' if stage == 'tuning' else 'the comparison'}: {seeds}.")
    again = table[table["epochs"] > 1] if "epochs" in table else table[:0]
    if len(again):
        rungs = ", ".join(dict.fromkeys(again.sort_values("n_params", kind="stable")["rung"]))
        told.append(f"Data were repeated at {rungs} (up to {again['epochs'].max():.2f} epochs).")
    return told


@dataclass(frozen=True)
class _Column:
    """A column of the trials: its heading on the page, on which one without is not shown, and its form."""

    heading: str = ""
    form: Callable[[Any], str] = str
    is_number: bool = False


_BEFORE, _AFTER = (
    {
        "trial_id": _Column("trial", lambda name: str(name)[:12]),
        "arm": _Column("arm"),
        "stage": _Column("stage"),
        "rung": _Column("rung"),
        "n_params": _Column(),
        "n_tokens": _Column("tokens", count, is_number=True),
        "seed": _Column("seed", is_number=True),
    },
    {
        "learning_rate": _Column("learning rate", "{:.3g}".format, is_number=True),
        "lr_status": _Column("rate is"),
        "status": _Column("status"),
        "cause": _Column("cause"),
        "loss": _Column("loss", "{:.4f}".format, is_number=True),
        **dict.fromkeys(("loss_validation", "flops"), _Column()),
        "wall_s": _Column("hours", lambda seconds: f"{seconds / 3600:.3g}", is_number=True),
        **dict.fromkeys(("planned_s", "device"), _Column()),
    },
)
"""What CSV holds of a trial, as far as it is known: before and after the settings that vary."""


def trials_table(table: pd.DataFrame, trials: ComparedTrials) -> Table:
    """Return a row for each trial of the checked ``table``, those of tuning too."""
    settings = {name: _Column(name.replace("_", " ")) for name in trials.varying_settings}
    columns = _BEFORE | settings | _AFTER
    chosen = table[[name for name in columns if name in table]].astype(object)
    known = chosen.notna() & (chosen != "")
    shown = {name: columns[name] for name in map(str, chosen) if columns[name].heading and known[name].any()}
    cells = [
        [column.form(value) if there else "" for value, there in zip(chosen[name], known[name], strict=True)]
        for name, column in shown.items()
    ]
    return Table(
        "Trials",
        tuple(column.heading for column in shown.values()),
        tuple(zip(*cells, strict=True)),
        tuple(column.is_number for column in shown.values()),
        records=tuple(chosen.where(chosen.notna(), None).to_dict("records")),
    )


def costs(table: pd.DataFrame) -> Table | None:
    """What each rung and stage of the checked ``table`` has cost, and what is left of its plan.

    None where nothing of it is recorded.
    """
    rows = table.drop_duplicates("trial_id") if "trial_id" in table else table  # arms may share trials
    groups = [(str(rung), of_rung) for (_, rung), of_rung in rows.groupby(["n_params", "rung"], sort=True)]
    stages = [(str(stage), of_stage) for stage, of_stage in rows.groupby("stage", sort=False)]
    body = [_cost(*group) for group in [*groups, *(stages if len(stages) > 1 else []), ("all", rows)]]
    names = [name for name in body[0] if any(row[name] for row in body)]
    if len(names) < 3:
        return None
    note = "All trials, those of tuning too. Hours: training and evaluation of the trials with a result."
    cells = tuple(tuple(row[name] for name in names) for row in body)
    numeric = tuple(name != "of" for name in names)
    return Table("Cost", tuple(names), cells, numeric, (note,), breaks=frozenset({len(groups)}))


def _cost(name: str, rows: pd.DataFrame) -> dict[str, str]:
    is_done = rows["status"].isin(HAS_RESULT)
    done, rest = rows[is_done], rows[~is_done]
    flops = "flops_counted" if "flops_counted" in rows and rows["flops_counted"].notna().any() else "flops"
    return {
        "of": name,
        "with a result": f"{len(done)} of {len(rows)}",
        "spent, h": _sum(done, "{:.3g}", 3600, "wall_s", "evaluation_s"),
        "left by the plan, h": _sum(rest, "{:.3g}", 3600, "planned_s"),
        "FLOPs spent": _sum(done, "{:.2e}", 1, flops),
    }


def _sum(rows: pd.DataFrame, form: str, unit: float, *columns: str) -> str:
    """The sum of the ``columns``, as far as they are recorded, in ``unit``; empty where the first is not."""
    known = [rows[name].astype(float) for name in columns if name in rows]
    if columns[0] not in rows or known[0].isna().all():
        return ""
    return form.format(sum(values.sum() for values in known) / unit)


def tuning_rows(choices: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what each choice of tuning.json came to, as text."""
    several = len({choice["field"] for choice in choices}) > 1
    return [
        {name: choice[name] for name in ("arm", "rung", "status", "extensions")}
        | {
            "setting": ", ".join(filter(None, [several * choice["field"], setting_text(choice, choices)])),
            "grid": [
                (f"{value:g}", "diverged" if loss is None else f"{loss:.4f}")
                for value, loss in zip(choice["grid"], choice["losses"], strict=True)
            ],
            "vertex": "" if choice["vertex"] is None else f"{choice['vertex']:.4g}",
            "chosen": f"{choice['chosen']:.4g}",
            "seeds": ", ".join(map(str, choice["seeds"])) if choice["grid"] else "",
        }
        for choice in choices
    ]
