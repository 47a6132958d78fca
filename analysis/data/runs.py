"""Which rows are runs of their own, which belong to one run, and which of them a cell takes.

None of this can be read off the losses, so it is taken from columns alone. A row is a run of its own where a
column says so; rows are repetitions where a column of seeds says so. A cell's number is one run's loss at its
planned end, no mean over checkpoints or learning rates: of checkpoints the last counts, of several rates the
one with the lowest validation loss, as a tuner would choose it.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.data.values import CELL_COLUMNS, is_blank
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import joined, plural, shortened
from scalevec.analysis.options import EACH_ROW

ONE_RUN = " (token counts of one run?)"
"""The end of a cluster's name that was not given: several token counts of one arm, N and seed."""
BUDGET_DIGITS = 6
"""Budgets of isoFLOP lines that agree in so many digits are one budget."""
FEWEST_SIZES = 3
"""A budget with so many sizes is a line; fewer carry no parabola."""
HAS_RESULT = frozenset(("completed", "diverged"))
"""The values of ``status`` of a trial that has a result."""
_RUN, _OTHER = "runs?|trial|job|experiment|exp|sweep", "id|uid|uuid|guid|key|hash|name|model|tag|index|row"
_NAMES_A_RUN = re.compile(rf"(^|_)({_RUN})($|_)")
_MAY_NAME = re.compile(rf"^(?!(.*_)?(checkpoint|ckpt|eval)s?($|_))(.*_)?({_RUN}|{_OTHER})($|_)")
"""How columns are called that name runs, and those that may name runs, rows or anything but checkpoints."""
_NAMES_BESIDE_STEPS = re.compile(rf"^name$|{_NAMES_A_RUN.pattern}")
"""Those that name runs where steps differ along them; others name their checkpoints."""
FEWEST_STEPS = 5
"""So many token counts in even steps look like the points of a training curve."""
_MEASURED = re.compile(
    r"^(loss|wall_s|tokens_per_s|peak_memory_bytes|allocated_bytes|cause|resumes|host|device|micro_batch|arithmetic)|"
    r"^(world_size|diverged_at_step|step_s_median|mfu|data_s|checkpoints_s|evaluation_s|planned_s)|"
    r"(^|_)(loss|perplexity|ppl|accuracy|acc|bpb|time|seconds|hours)($|_)"
)
_RATE = re.compile(
    r"(?!given_|field_|last_|current_|final_)(\w+_)?(lr|learning_rate)(_(max|peak|base|init))?"
)
"""How columns of learning rates are called; ``given`` is beside what a person named, a field of a grid."""
STEPS = (
    *("steps", "step", "global_step", "_step", "iteration", "iter", "iter_num", "epoch"),
    *("trainer/global_step", "train/global_step", "num_updates", "update", "current_iteration", "it"),
    *("last_step", "steps_completed", "consumed_samples", "consumed_train_samples", "samples_seen"),
)
"""What a column of steps is called, the first of them first."""
_STEPS = re.compile(
    r"((trainer|train|training|total|num|n|current|final|last|global|completed|optimizer)_)*"
    r"(step|iteration|iter|update|epoch)s?(_(done|completed|num))?|(\w+_)?tokens_(seen|processed|consumed|trained)|"
    r"(seen|processed|consumed|trained|total)_tokens"
)
_OF_A_STEP = re.compile(r"(^|_)(batch|bs|accum|accumulation|devices|gpus|world)($|_)")
"""How columns are called that say how many tokens a step takes."""
UNFINISHED = 0.98
"""A run that made a smaller share of the steps of others is not at their end; logging counts a few more."""
VALIDATION = "loss_validation"
FEWEST_IN_A_GRID = 3
"""Of two rates each is at an edge, and no optimum shows."""


def refuse_twins(table: pd.DataFrame) -> None:
    """Raise :class:`DataError` where two columns have one name."""
    twins = table.columns[table.columns.duplicated()]
    if len(twins):
        raise DataError(f"the table has several columns {str(twins[0])!r}; allowed: one of each name")


def plain_columns(table: pd.DataFrame) -> list[str]:
    """The columns of plain values: two lists or dictionaries cannot be told equal by their hash."""
    objects = [name for name, kind in table.dtypes.items() if pd.api.types.is_object_dtype(kind)]
    odd = {name for name in objects if not table[name].map(pd.api.types.is_hashable).all()}
    return [name for name in table.columns if name not in odd]


def rates_of(table: pd.DataFrame) -> list[str]:
    """The columns of learning rates: ``lr``, ``optimizer.lr``, ``muon_lr``; first the one of our name."""
    names = [name for name in plain_columns(table) if _RATE.fullmatch(_plain(str(name)))]
    return sorted(names, key=lambda name: str(name) != "learning_rate")


def runs_of(table: pd.DataFrame) -> "pd.Series[str]":
    """The run of each row of a table without a column ``cluster`` [rows].

    The trial where there are trials. Else rows that are equal in every column are one run, and so are several
    token counts of one arm, N and seed, unless :func:`has_runs_by_row` says that each is a run of its own.
    """
    if "trial_id" in table.columns:
        return table["trial_id"].astype(str)
    # By hashes: a groupby over thousands of columns takes minutes.
    hashes = pd.util.hash_pandas_object(table[plain_columns(table)], index=False)
    equal_rows = pd.Series(pd.factorize(hashes)[0], table.index).astype(str)
    if not {"n_params", "n_tokens"} <= set(table.columns):
        return equal_rows
    key = [name for name in ("arm", "n_params", "seed") if name in table.columns]
    of_size = table.groupby(key, sort=False, dropna=False)
    several = of_size["n_tokens"].transform("nunique") > 1
    groups = of_size.ngroup()
    if not several.any() or has_runs_by_row(table, groups):
        return equal_rows
    return equal_rows.where(~several, groups.astype(str) + ONE_RUN)


def has_runs_by_row(table: pd.DataFrame, groups: "pd.Series[int]") -> bool:
    """Whether a column shows that rows of one of ``groups``, which differ in tokens, are runs of their own.

    Either a column names each row and no other names several (beside ``run_name`` an ``id`` counts rows). One
    that may name anything must not hold the numbers of rows, nor may tokens go on in even steps as along a
    curve, nor steps beside them; one that names runs by its own name may have one of the first two against
    it. Or ``flops`` has a few budgets with several sizes each: training curves do not meet on such lines.
    """
    if budgets_of(table) is not None or ("seed" in table and _steps_differ(table, "n_tokens")):
        return True
    may_name = _NAMES_BESIDE_STEPS if _steps_differ(table) else _MAY_NAME
    known = [(name, _plain(str(name))) for name in plain_columns(table)]
    names = [name for name, plain in known if _MAY_NAME.search(plain) and not _MEASURED.search(plain)]
    if any(_names_groups(table[name], groups) for name in names):
        return False
    arms = table["arm"].astype(str) if "arm" in table.columns else ""
    each = [name for name in names if may_name.search(_plain(str(name))) and table[name].notna().all()]
    each = [name for name in each if not (arms + "\n" + table[name].astype(str)).duplicated().any()]
    even = _in_even_steps(table, groups)
    # Runs may be numbered as rows are, and planned in even steps; hardly both.
    return any(
        even + _counts_rows(table[name]) <= bool(_NAMES_A_RUN.search(_plain(str(name)))) for name in each
    )


def _steps_differ(table: pd.DataFrame, *more: str) -> bool:
    """Whether steps differ within an arm, N and seed (at one number of tokens: those are of the plan)."""
    at = [name for name in ("arm", "n_params", "seed", *more) if name in table.columns]
    steps = _steps_of(table)
    return bool(steps and (table.groupby(at, dropna=False)[steps].nunique() > 1).any(axis=None))


def _steps_of(table: pd.DataFrame) -> list[str]:
    """The columns of steps, or of tokens that were seen beside those of the plan."""
    others = [str(name) for name in plain_columns(table) if _STEPS.fullmatch(_plain(str(name)))]
    return list(dict.fromkeys([*(name for name in STEPS if name in table), *others]))


def _plain(column: str) -> str:
    """``runName`` and ``Run.Name`` as ``run_name``."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", column).lower())


def _names_groups(column: "pd.Series[Any]", groups: "pd.Series[int]") -> bool:
    """Whether values of ``column`` [rows] repeat, each within one of the ``groups`` [rows]."""
    if pd.api.types.is_float_dtype(column) or not column.duplicated().any():
        return False
    return bool((groups.groupby(column, sort=False).nunique() == 1).all())


def _counts_rows(column: "pd.Series[Any]") -> bool:
    """Whether ``column`` [rows] holds the numbers of rows, which name nothing."""
    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    return bool(np.ptp(numbers) == len(numbers) - 1 > 1) if numbers.notna().all() else False


def _in_even_steps(table: pd.DataFrame, groups: "pd.Series[int]") -> bool:
    """Whether the token counts of some group are those at which a training curve is logged."""
    for _, tokens in table["n_tokens"].groupby(groups, sort=False):
        steps = np.diff(np.unique(tokens.dropna().to_numpy(float)))
        if len(steps) >= FEWEST_STEPS - 1 and np.allclose(steps, steps[0], rtol=1e-3):
            return True
    return False


def budgets_of(table: pd.DataFrame) -> "pd.Series[float] | None":
    """The planned compute budget of each row, FLOPs; None where the column ``flops`` holds no such lines.

    There are lines where half of the budgets, rounded, hold :data:`FEWEST_SIZES` sizes or more.
    """
    if not {"flops", "n_params"} <= set(table.columns):
        return None
    flops = pd.to_numeric(table["flops"], errors="coerce").to_numpy(float)
    if not (flops > 0).all():
        return None
    rounded = np.exp(np.round(np.log(flops), BUDGET_DIGITS))
    sizes = table.groupby(rounded)["n_params"].nunique()
    are_lines = len(sizes) > 1 and (sizes >= FEWEST_SIZES).mean() >= 0.5
    return pd.Series(rounded, table.index) if are_lines else None


def checkpoints(rows: pd.DataFrame, cluster: str) -> str:
    """What makes the completed ``rows`` of an arm dependent, as a sentence; empty where runs are known."""
    guessed = rows[cluster].astype(str).str.endswith(ONE_RUN)
    if not guessed.any():
        return ""
    counts = rows.loc[guessed, cluster].value_counts()
    least, most = int(counts.min()), int(counts.max())
    number = f"{most}" if least == most else f"{least} to {most}"
    known = {"n_params", "rung", "arm", "seed", "status", "stage", cluster}
    groups = pd.Series(pd.factorize(rows[cluster])[0], rows.index)
    columns = [name for name in plain_columns(rows) if name not in known and not _MEASURED.search(str(name))]
    may_name_runs = [name for name in columns if _names_groups(rows[name], groups)][:3]
    return (
        "several token counts of one N and seed: these look like checkpoints of one run "
        f"({number} rows per run, {plural(len(counts), 'run')}), which are not independent; name their run "
        f"by --cluster {joined(may_name_runs or ['COLUMN'], 'or')}, or say that each row is a run that ended "
        f"there by --cluster {EACH_ROW}"
    )


def differing(rows: pd.DataFrame, cells: npt.NDArray[np.float64]) -> list[str]:
    """The columns in which rows of one cell [rows] differ, but for measurements and names of single rows."""
    of_cell = rows.groupby(cells, sort=False)
    return [
        name
        for name in plain_columns(rows)
        if name not in ("cluster", "trial_id", "status", "stage", "rung", "seed")
        and not _MEASURED.search(str(name).lower())
        and (rows[name].nunique(dropna=False) < len(rows) or name in ("n_params", "n_tokens"))
        and (of_cell[name].nunique(dropna=False) > 1).any()
    ]


def not_repetitions(
    rows: pd.DataFrame, cells: npt.NDArray[np.float64], variables: str
) -> tuple[str, list[str]]:
    """What is wrong with rows of one cell that no seed tells apart, and the columns in which they differ.

    An empty sentence where there are no such rows: all have a seed, and no two of an arm and cell the same.
    ``variables`` names what is equal in a cell.
    """
    seeds = rows[["arm", "seed"]].assign(cell=cells)
    seeds = seeds[seeds["cell"].duplicated(keep=False)]
    if seeds["seed"].notna().all() and not seeds.duplicated().any():
        return "", []
    several = int((pd.Series(cells).value_counts() > 1).sum())
    columns = differing(rows, cells)
    what = f"differ in {shortened(columns)}" if columns else "differ in no column but what was measured"
    return (
        f"rows of equal {variables} that no seed tells apart (at {plural(several, 'point')}) {what}: they "
        "are not taken as repeated seeds; choose among them with --where, or name seeds in a column seed"
    ), columns


def joined_labels(columns: "Sequence[pd.Series[Any]]") -> npt.NDArray[np.intp]:
    """The connected parts of rows that share a label in any of ``columns``: its number [rows]."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    codes = pd.factorize(pd.concat(list(columns)))[0].reshape(len(columns), -1)
    if not codes.size:
        return np.zeros(0, np.intp)
    size = int(codes.max()) + 1
    edges = (np.repeat(codes[:1], len(codes), axis=0).ravel(), codes.ravel())
    graph = coo_array((np.ones(codes.size), edges), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1][codes[0]], np.intp)


def last_of_each_run(rows: pd.DataFrame, cluster: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The last of ``rows`` of every run, and the checkpoints at fewer tokens before it.

    Rows are checkpoints where a column names runs (``cluster`` if it is called so or was guessed, ``run`` or
    ``trial_id``) and one of them has several numbers of tokens at one seed and size, and where rows that are
    equal else differ in a column of steps. Budgets that share a trunk are runs of their own: their column is
    called ``cluster``, or each has its trial.

    Raises:
        DataError: Curves of one size and number of tokens, or runs of one arm there, end at different steps.
    """
    if {"trial_id", "stream"} <= set(rows):
        return rows, rows[:0]
    at_end, of_tokens = np.ones((2, len(rows)), bool)
    one_size = ["arm", "n_params", "seed"]
    run, along = cluster, rows[cluster].astype(str).str.endswith(ONE_RUN).to_numpy(bool)
    if _NAMES_A_RUN.search(cluster.lower()):
        along = np.ones(len(rows), bool)
    elif cluster != EACH_ROW and (named := next((name for name in ("run", "trial_id") if name in rows), "")):
        of_arm = (rows["arm"].astype(str) + "\n" + rows[named].astype(str)).where(rows[named].notna())
        if _names_groups(of_arm, rows.groupby(one_size, dropna=False).ngroup()):
            run, along = named, ~rows[named].map(is_blank).to_numpy(bool)
    if along.any():
        last = rows.groupby([run, *one_size], dropna=False)["n_tokens"].transform("max")
        at_end &= ~along | (rows["n_tokens"] >= last).to_numpy(bool)
    if step := next(iter(_steps_of(rows)), None):
        numbers = pd.to_numeric(rows[step], errors="coerce").fillna(-1)
        of_run = [rows[name] for name in (*one_size, *CELL_COLUMNS) if name in rows]
        of_run += [rows[run].where(along)] if along.any() else []
        # One rate at each step is a schedule of the run's; several at one step are a grid.
        rates = [rows[name] for name in rates_of(rows)]
        of_run += rates if pd.concat([*of_run, numbers], axis=1).duplicated().any() else []
        last = numbers.groupby(of_run, dropna=False).transform("max")
        of_tokens = (numbers >= last).to_numpy(bool)
        keep = at_end & of_tokens
        _refuse_unfinished(rows[keep], numbers[keep], step, are_curves=bool((numbers < last).any()))
    return rows[at_end & of_tokens].reset_index(drop=True), rows[~at_end & of_tokens]


def _refuse_unfinished(ends: pd.DataFrame, steps: "pd.Series[float]", step: str, *, are_curves: bool) -> None:
    """Raise :class:`DataError` where runs of one cell in ``ends`` [runs] have other last ``steps`` [runs].

    Logging may count a few more where no row is of a curve; arms of another batch size end elsewhere.
    """
    ends = ends.assign(_last=steps)[ends["status"] == "completed"]
    batch = [name for name in plain_columns(ends) if _OF_A_STEP.search(_plain(str(name)))]
    cell = [name for name in ("n_params", *CELL_COLUMNS, *batch) if name in ends]
    longest = ends.groupby(cell, dropna=False)["_last"].transform("max")
    is_short = ends["_last"] < longest
    if not are_curves:
        is_short &= (ends["_last"] > 0) & (ends["_last"] < UNFINISHED * longest)
    for row in ends.assign(_longest=longest)[is_short].to_dict("records")[:1]:
        raise DataError(
            f"runs of one N and number of tokens end at different values of {step}: arm {row['arm']}, seed "
            f"{row['seed']} of {row['n_params']:g} parameters at {row['_last']:g}, others at "
            f"{row['_longest']:g}; a run's loss counts at its planned end. Leave unfinished runs out by "
            f"--where, or give the tokens that each row has seen: --map 'n_tokens={step} * TOKENS_PER_STEP'; "
            "of steps of other sizes: --map steps=n_tokens"
        )


def at_planned_end(ends: pd.DataFrame) -> pd.DataFrame:
    """``ends`` [runs] with the planned tokens of runs that diverged before they had seen them.

    Those are the tokens of the runs of its size that completed, where all of these have one number.
    """
    completed = ends.loc[ends["status"] == "completed"].groupby(["n_params", "rung"])["n_tokens"]
    planned = completed.first().where(completed.nunique() == 1).rename("_planned")
    of_size = ends[["n_params", "rung"]].join(planned, ["n_params", "rung"])["_planned"]
    is_early = (ends["status"] == "diverged") & (ends["n_tokens"] < of_size)
    return ends.assign(n_tokens=ends["n_tokens"].mask(is_early, of_size))


def best_rate_of_each_cell(rows: pd.DataFrame, settings: Sequence[str] = ()) -> tuple[pd.DataFrame, str]:
    """``rows`` with one learning rate for each arm and cell, and what was chosen as a sentence.

    A rate that was chosen from three or more is ``tuned``, at the edge of them ``censored``; an arm that was
    run at one where another was chosen is ``fixed``.

    Raises:
        DataError: Rates vary within an arm's cell, and there is no validation loss to choose by.
    """
    rates = rates_of(rows)
    for name in rates:  # 0.001 in 32 bits is 0.0010000000474974513
        if pd.api.types.is_float_dtype(rows[name]):
            rounded = rows[name].map("{:.6g}".format).astype(float)
            rows = rows.assign(**{name: rounded}) if rounded.nunique() < rows[name].nunique() else rows
    names = dict.fromkeys(name for name in ("arm", *CELL_COLUMNS, *settings) if name in rows)
    known = rows if "lr_status" in rows else rows.assign(lr_status="fixed")
    # A tuned arm may have another rate at each seed's trial of a cell only by its own tuning.
    fixed = known["lr_status"].isin(("fixed", "")) | known["lr_status"].isna()
    for column in rates:
        cell = [name for name in names if name != column]
        swept = fixed & (rows.groupby(cell, dropna=False)[column].transform("nunique") > 1)
        if swept.any():
            break
    else:
        return rows, ""
    arms = joined(list(dict.fromkeys(rows.loc[swept, "arm"].astype(str))))
    at_one = rows[swept].groupby([*cell, column], dropna=False)[rates].nunique() > 1
    several = [column, *at_one.columns[at_one.any()]]
    completed = rows[swept & (rows["status"] == "completed")]
    if several[1:] or VALIDATION not in rows or completed[VALIDATION].isna().any():
        add = "" if several[1:] else f"add a column {VALIDATION}, by which the best rate is chosen, "
        raise DataError(
            f"{joined(several)}: several values in {arms} at one size: a mean over rates compares grids, not "
            f"arms, and the lowest test loss of several is too low: {add}choose one rate for each arm and "
            "size by --where, or say by --map learning_rate=COLUMN what the rate is"
        )
    parts = [_of_best_rate(of_cell, column) for _, of_cell in known[swept].groupby(cell, dropna=False)]
    chosen = pd.concat([known[~swept], *parts]).sort_index().reset_index(drop=True)
    return chosen, f"the best {column} of {arms} at each size is chosen by {VALIDATION}"


def _of_best_rate(of_cell: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rows of one arm and cell at the rate with the lowest mean validation loss over its seeds."""
    completed = of_cell[of_cell["status"] == "completed"]
    best, lr_status = of_cell[column].iloc[0], "fixed"
    if len(completed):
        # A rate at which some seed diverged is not chosen for the mean of the others.
        bad = of_cell.loc[of_cell["status"] == "diverged", column].unique()
        means = completed.groupby(column)[VALIDATION].mean()
        means = means.drop(bad, errors="ignore") if len(means) > len(bad) else means
        best, grid = means.idxmin(), np.sort(of_cell[column].dropna().unique())
        at_edge = len(grid) < FEWEST_IN_A_GRID or best in (grid[0], grid[-1])
        lr_status = "censored" if at_edge else "tuned"
    chosen: pd.DataFrame = of_cell[of_cell[column] == best].assign(lr_status=lr_status)
    return chosen
