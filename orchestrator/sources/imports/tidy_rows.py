"""From tables of somebody else's to tidy rows: columns named, cells read, all problems said at once."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.doubts import APART, LARGEST_LOSS
from scalevec.analysis.data.runs import HAS_RESULT, ONE_RUN, plain_columns, rates_of, runs_of
from scalevec.analysis.data.tidy import NUMBERS, STATUSES, UNREAD, check_values, parsed
from scalevec.analysis.data.values import REQUIRED, is_blank, numbers, status, typed
from scalevec.analysis.data.where import select
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import plural, shortened
from scalevec.orchestrator.sources.imports.column_names import (
    PATTERNS,
    Findings,
    GivenRows,
    guessed,
    has_loss_beside,
    loss_notes,
    parsed_maps,
    plain_name,
    quoted,
    refuse_charts,
)
from scalevec.orchestrator.sources.imports.given_tables import SOURCE, GivenTable, named_by_file

BITS_PER_NAT = 1 / math.log(2)
SMALLEST_COUNT = 1e4
"""Parameters; fewer beside many times more are in another unit, as millions beside plain counts."""
_TELLS_ENDS = re.compile(
    r"((is|has|run|job|sys)_?)*(failed|crashed|early_stopped|(?P<diverged>diverged)|(exit|return)_?code|"
    r"(?P<well>finished|completed|succeeded|success|successful|done|ok)|(?P<why>error|exception|traceback))"
)
_ANSWER = re.compile(r"|true|false|yes|no|-?\d+(\.0|:\d+)?")
"""How columns are called that tell which runs failed, and what their cells hold; other cells tell nothing."""
_COUNTS = ("n_params", "n_tokens", "steps")
_WHAT_RAN = ("run", "arm", "rung", "seed", "n_params", "n_tokens", "optimizer", "schedule", "learning_rate")


@dataclass(frozen=True)
class ImportedTable:
    """Tidy ``rows``; by source the expression of each of our columns; what a person should know."""

    rows: pd.DataFrame
    columns: Mapping[str, Mapping[str, str]]
    notes: Sequence[str]


def imported(
    tables: Sequence[GivenTable], given: Sequence[str] = (), unit: str | None = None, where: str | None = None
) -> ImportedTable:
    """Tidy rows of ``tables``, one below the other.

    Args:
        tables: As they were read; each has columns of its own.
        given: ``NAME=EXPRESSION`` of our columns (``loss=val/loss``); of several for one name the first that
            a table can compute counts. N and tokens that are given so are not doubted.
        unit: Of the losses, ``nats``, ``bits``, ``perplexity`` or ``bits-per-byte``: they become nats/token,
            bits per byte where a column ``bytes_per_token`` is known. None: nats, unless they look otherwise.
        where: An expression for the rows that are meant, by our names of columns or theirs; None for all.

    Returns:
        The rows, with the columns that were found, and all others by the names that they had.

    Raises:
        DataError: What is ambiguous, missing or cannot be read, of each table, with rows.
    """
    wanted, findings, columns, parts = parsed_maps(given), Findings(), {}, []
    tables, findings.notes = named_by_file(tables)
    for table in tables:
        of_table = Findings()
        rows, columns[table.name] = _with_our_columns(table, wanted, of_table, named=wanted)
        if not of_table.problems:
            try:
                kept = select(rows, where).drop(columns=_taken(columns[table.name], rows))
                if n_left_out := len(rows) - len(kept):
                    of_table.notes.append(f"left out by --where: {plural(n_left_out, 'row')}")
                part = _tidy(kept, columns[table.name]["loss"], wanted, unit, of_table)
                label = f"{table.name} row" if len(tables) > 1 else "row"
                parts.append(part.set_axis([f"{label} {number}" for number in part.index]))
            except DataError as error:
                of_table.problems.append(str(error))
        findings.add(table.name, of_table)
    findings.refuse()
    common = [name for name in PATTERNS if all(name in part for part in parts)]
    whole = _of_runs(_without_copies(pd.concat(parts), common, findings), findings)
    _check_units(whole, unit, findings)
    findings.refuse()
    return ImportedTable(whole.reset_index(drop=True), columns, findings.notes)


def as_read(table: GivenTable, given: Sequence[str] = ()) -> ImportedTable:
    """The rows of one table with our columns beside its own, for commands that know its unit themselves.

    Columns of our names are taken as they are, and no cell is refused: ``--where`` may leave its row out.
    Where the loss, N or tokens are not found, the rows stay as they are: a formula may need none of them.
    The index is that of the file, by which later messages count rows. Raises :class:`DataError`.
    """
    findings, wanted = Findings(), parsed_maps(given)
    of_arm = {text.strip("`") for text in wanted.get("arm", ())}
    ours = {name: [quoted(name)] for name in PATTERNS if name in table.rows and name not in of_arm}
    if has_loss_beside(table.rows):
        del ours["loss"]
    rows, columns = _with_our_columns(table, ours | wanted, findings, named=wanted, keep_all=True)
    if "loss" not in columns and "loss" in rows:
        findings.refuse()
    if any(name not in columns for name in REQUIRED):
        rows.attrs[UNREAD] = "; ".join(findings.problems)
        return ImportedTable(rows, {}, [])
    findings.refuse()
    words = set(rows["status"].dropna().map(str)) if columns.get("status") == "status" else {""}
    if not words <= set(STATUSES):
        rows = _with_result(rows, findings, is_told="status" in columns)
    findings.notes += loss_notes(columns["loss"], None, rows)
    guesses = {name: text for name, text in columns.items() if name not in ours or name in wanted}
    return ImportedTable(rows, {table.name: guesses} if guesses else {}, findings.notes)


def _with_our_columns(
    table: GivenTable,
    wanted: Mapping[str, Sequence[str]],
    findings: Findings,
    *,
    named: Collection[str],
    keep_all: bool = False,
) -> tuple[pd.DataFrame, dict[str, str]]:
    """The rows with our columns and all others, or none where there are problems; the expressions of ours.

    Of the ``wanted`` a person has ``named`` some: a rate so named is the only one. Rows of a run where its
    loss was not measured are left out. With problems rows stay to ``keep_all``. The column of the arms is
    ours alone: what tells them apart is no setting of theirs.
    """
    refuse_charts(table.rows)
    rows = GivenRows(table.rows.reset_index(drop=True))
    columns = guessed(
        rows.given, {name: rows.first_able(name, texts, findings) for name, texts in wanted.items()}, findings
    )
    if findings.problems and not keep_all:
        return pd.DataFrame(), columns
    taken = {name: rows.column(expression) for name, expression in columns.items()}
    others = rows.given[[column for column in rows.given if column == "run" or column != taken.get("arm")]]
    clashes = {name: f"given.{name}" for name, column in taken.items() if name in others and column != name}
    if "learning_rate" in named:
        clashes |= {name: f"given.{name}" for name in rates_of(others) if name != "learning_rate"}
    ours = {name: rows.cells(expression) for name, expression in columns.items()}
    whole = _set_aside(typed(others.rename(columns=clashes).assign(**ours)), columns, wanted, findings)
    whole = whole if keep_all else whole[[*columns, *whole.columns.drop([*columns])]]
    if "loss" in ours:
        whole = _evaluated(whole, ours["loss"], findings)
    return whole, columns


def _set_aside(
    rows: pd.DataFrame, columns: dict[str, str], wanted: Mapping[str, Sequence[str]], findings: Findings
) -> pd.DataFrame:
    """``rows`` without the columns of numbers that no answer needs and that hold words, as ``1.2h``.

    They leave ``columns`` too, and one of our name is given another. One that a person names is wanted, and a
    rate says what was run.
    """
    for name in NUMBERS:
        text = columns.get(name, name).strip("`")
        is_named = name in wanted and text != name
        if name not in rows or name in REQUIRED or text == "learning_rate" or is_named:
            continue
        if rows[name].dtype.kind == "O" and None in (read := numbers(cells := rows[name].tolist())):
            findings.notes.append(
                f"column {text!r} is not read: {cells[read.index(None)]!r:.60} is no number"
            )
            columns.pop(name, None)
            rows = rows.rename(columns={name: f"given.{name}"}) if text == name else rows.drop(columns=name)
    return rows


def _taken(columns: Mapping[str, str], rows: pd.DataFrame) -> list[str]:
    """The columns of ``rows`` that became one of ours by another name."""
    names = {expression.strip("`") for expression in columns.values()}
    return [name for name in rows if name in names and name not in columns]


def _evaluated(rows: pd.DataFrame, losses: "pd.Series[Any]", findings: Findings) -> pd.DataFrame:
    """``rows`` but for those of a run's log that tell no loss (``losses`` [rows], as given) where others do.

    They were logged between evaluations, or after the last where no run of that size has a loss. A run that
    ends without a loss where others have one diverged, as one that wrote nan or has no loss at all.
    """
    is_nan = losses.map(lambda cell: str(cell).strip().lower() == "nan").astype(bool)
    blank = losses.map(lambda cell: cell is None or (isinstance(cell, str) and is_blank(cell))).astype(bool)
    blank |= is_nan  # in pandas nan and null are one
    key = [name for name in ("run", "arm", "n_params", "seed") if name in rows]
    along = next((name for name in ("steps", "n_tokens") if name in rows), None)
    if not blank.any() or along is None:
        return rows
    counts = {name: pd.to_numeric(rows[name], errors="coerce") for name in _COUNTS if name in rows}
    if "run" not in key and not runs_of(rows.assign(**counts)).str.endswith(ONE_RUN).any():
        if "seed" not in key:
            return rows  # any of them may be a run of its own
        key += ["n_tokens"] if "n_tokens" in rows else []
    runs = rows.groupby(key, dropna=False).ngroup()
    measured = (at := counts[along]).where(~blank)
    last = measured.groupby(runs).transform("max")
    point = [counts[name] for name in ("n_params", along) if name in counts]
    apart = measured.sort_values().groupby(runs).diff().reindex(rows.index).groupby(runs).transform("max")
    late = blank.groupby(point, dropna=False).transform("all") & (~is_nan | (at - last < apart))
    between = blank & ((at <= last) | (at > last) & late)
    if between.any():
        which = f"rows {_listed(between, 1)}"
        findings.notes.append(f"{which} were logged between evaluations, without a loss: left out")
    return rows[~between]


def _of_runs(rows: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """``rows`` with their run as their cluster where they are checkpoints along runs."""
    if "run" not in rows or "cluster" in rows or not (again := rows["run"].duplicated()).any():
        return rows
    findings.notes.append(f"checkpoints along {plural(int((~again).sum()), 'run')}: their last are compared")
    return rows if rows["run"].map(is_blank).any() else rows.assign(cluster=rows["run"])


def _tidy(
    rows: pd.DataFrame, loss: str, wanted: Mapping[str, object], unit: str | None, findings: Findings
) -> pd.DataFrame:
    """Our columns of ``rows`` with numbers as such and losses in nats/token; rows without a result left out.

    ``loss`` is the expression of the losses. The index holds the numbers of rows. Raises :class:`DataError`.
    """
    table = parsed(_with_result(rows, findings), REQUIRED)
    # A perplexity of 1000 is one; of nats it stands for none.
    check_values(table, REQUIRED[:2] if unit == "perplexity" else REQUIRED)
    if "seed" in table and (missing := table["seed"].isna() & (table["status"] == "completed")).any():
        findings.notes.append(f"rows {_listed(missing)} have no seed: they pair with no run")
    for name in ("n_params", "n_tokens"):
        small, most = table[name] < SMALLEST_COUNT, table[name].max()
        if name not in wanted and small.any() and most >= SMALLEST_COUNT:
            findings.problems.append(
                f"{name} of rows {_listed(small)} is below {SMALLEST_COUNT:,.0f} beside {most:.4g}: "
                f"of another unit? Give plain counts, or 10.6M; --map {name}=COLUMN takes them as they are"
            )
    findings.notes += loss_notes(loss, unit, table)
    return table.assign(loss=_losses(table, unit, findings))


def _with_result(rows: pd.DataFrame, findings: Findings, *, is_told: bool = True) -> pd.DataFrame:
    """The runs with a result, and their ``status``; an unknown word stays as it is.

    A run that ended without a finite loss has diverged. Of runs without a result nobody planned that they be
    there: they leave no pair incomplete. Where no status ``is_told``, one is added only if some run diverged.
    """
    given = rows["status"] if "status" in rows else pd.Series("", rows.index, dtype=object)
    given = given.map(lambda word: "completed" if is_blank(word) else str(word))
    words = given.map(lambda word: status(word) or word).astype(object)
    told = _told_by_answers(rows)
    words = words.mask((words == "completed") & told.notna(), told)
    is_told = is_told or bool(told.notna().any())
    losses = numbers(rows["loss"].tolist(), "loss")
    without = pd.Series([loss is not None and not math.isfinite(loss) for loss in losses], rows.index)
    diverged = (words == "completed") & without
    if diverged.any():
        ended = "ended without a finite loss: diverged; leave them out if none was measured"
        findings.notes.append(f"rows {_listed(diverged, 1)} {ended}")
    elif not is_told:
        return rows
    words = words.mask(diverged, "diverged")
    unfinished = words.isin(set(STATUSES) - HAS_RESULT)
    for name, which in unfinished[unfinished].groupby(words):
        findings.notes.append(f"left out: {len(which)} {name} (rows {_listed(which, 1)})")
    return rows.assign(status=words)[~unfinished]


def _told_by_answers(rows: pd.DataFrame) -> "pd.Series[Any]":
    """``failed`` or ``diverged`` where a column such as ``crashed`` or ``exit_code`` says so."""
    told = pd.Series(None, rows.index, dtype=object)
    for column in rows:
        if (name := _TELLS_ENDS.fullmatch(plain_name(str(column)))) is None:
            continue
        cells = rows[column].map(lambda cell: "" if is_blank(cell) else str(cell).strip().lower())
        if name["why"]:
            told = told.mask(cells.str.contains("^(?!no ).*[a-z]{3}"), "failed")
        elif cells.map(_ANSWER.fullmatch).map(bool).all():
            is_no = cells.isin(("false", "no", "0", "0.0", "0:0"))
            bad = (is_no if name["well"] else ~is_no) & (cells != "")
            told = told.mask(bad, "diverged" if name["diverged"] else "failed")
    return told


def _losses(table: pd.DataFrame, unit: str | None, findings: Findings) -> "pd.Series[float]":
    """The losses in nats/token where ``unit`` allows it; adds a problem where some cannot be in ``unit``."""
    loss = table["loss"].where(table["status"] == "completed")
    nats = in_nats(loss, unit, table)
    if unit == "bits-per-byte" and "bytes_per_token" not in table:
        findings.notes.append("losses stay in bits per byte; say so to fit and compare: --unit bits-per-byte")
    if unit == "perplexity" and (bad := loss < 1).any():
        findings.problems.append(f"loss of rows {_listed(bad)} is below 1, which no perplexity is")
    if unit in (None, "bits") and (bad := nats > LARGEST_LOSS).any():
        findings.problems.append(
            f"loss of rows {_listed(bad)} is more than {LARGEST_LOSS:g} nats/token: a perplexity? --unit "
            "perplexity takes it (of all rows); where a run diverged write nan; --unit nats takes it as it is"
        )
    return nats


def in_nats(loss: "pd.Series[float]", unit: str | None, table: pd.DataFrame) -> "pd.Series[float]":
    """``loss`` [rows] in nats/token; bits per byte stay where ``table`` [rows] has no ``bytes_per_token``."""
    if unit == "perplexity":
        return loss.where(loss >= 1).map(math.log, na_action="ignore")
    if unit == "bits-per-byte":
        return loss * math.log(2) * table["bytes_per_token"] if "bytes_per_token" in table else loss
    return loss * math.log(2) if unit == "bits" else loss


def _without_copies(rows: pd.DataFrame, common: Sequence[str], findings: Findings) -> pd.DataFrame:
    """``rows`` with each run once; adds a problem where rows of one run differ. The index names the rows.

    ``common`` are our columns that every source has: by them two sources tell that they have one run, if a
    run or seed is among them. Rows of a run that differ in steps or tokens are checkpoints along it.
    """
    what_ran = [name for name in common if name in _WHAT_RAN]
    copies = rows.duplicated([name for name in plain_columns(rows) if name != SOURCE])
    several = SOURCE in rows and rows[SOURCE].nunique() > 1
    if several and {"run", "seed"} & set(what_ran):
        copies |= rows[what_ran].notna().all(axis=1) & rows.duplicated(list(common))
    if copies.any():
        again = "in another source too, left out" if several else "equal to others in every column: left out"
        findings.notes.append(f"{_named(copies)}: {again}")
    kept = rows[~copies]
    if "run" in kept:
        of_row = [name for name in ("run", "n_tokens", "steps") if name in kept]
        twice = kept["run"].notna() & kept["run"].ne("") & kept.duplicated(of_row, keep=False)
        for name in of_row[1:]:  # what a resumed run made again on its way is no end
            twice &= kept[name] >= kept.groupby("run", dropna=False)[name].transform("max")
        if twice.any():
            names: Sequence[object] = kept.loc[twice, "run"].unique().tolist()
            findings.problems.append(
                f"{_named(twice)} are of the same runs ({shortened(names)}) and differ, though not in steps "
                "or tokens as checkpoints do: name the runs by another column, --map run=COLUMN, or choose "
                "rows by --where"
            )
    return kept


def _check_units(table: pd.DataFrame, unit: str | None, findings: Findings) -> None:
    """Add a problem where some losses look as if they were in another unit than others at their N and tokens.

    A minority of higher losses may be of runs that failed to train: that is noted, unless they are higher by
    as much as bits are than nats. The index of ``table`` names its rows.
    """
    completed = table[table["status"] == "completed"]
    logs: pd.Series[float] = np.log(completed["loss"])
    point = [name for name in ("n_params", "n_tokens", "steps", "corpus") if name in completed]
    of_point = logs.groupby([completed[name] for name in point], dropna=False)
    above = logs - of_point.transform("min")
    split = of_point.transform("max") - of_point.transform("min") > math.log(APART)
    higher = above[split] > math.log(APART)
    if not split.any():
        return
    factor = float(above[split][higher].median())
    is_minority = 2 * higher.sum() < len(logs)
    as_bits = abs(factor - math.log(BITS_PER_NAT)) < math.log(1.03) and higher.sum() > 1
    names = _named(higher if is_minority else ~higher)
    words = f"losses at the same N and tokens differ by a factor of {math.exp(factor):.2f}"
    if unit is None and (as_bits or not is_minority):
        how = "as bits are to nats" if as_bits else "of another unit?"
        remedy = "import what is in one unit with its --unit, or leave these rows out; --unit nats takes them"
        findings.problems.append(f"{words}, {how} ({names}): {remedy} as they are")
    else:
        findings.notes.append(f"{words} ({names}): runs that failed to train? They count as they are")


def _named(which: "pd.Series[bool]") -> str:
    """The names of rows in an index, of which the end tells most: the beginning is a path."""
    return shortened([str(name)[-40:] for name in which.index[which]])


def _listed(which: "pd.Series[bool]", before: int = 0) -> str:
    """The numbers of the rows that ``which`` tells; the first one is ``before`` less in its index."""
    return shortened((which.index[which] + before).tolist())


def repeated(columns: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The options ``--map`` that choose the same columns again, each once."""
    maps = (f"{name}={expression}" for of_table in columns.values() for name, expression in of_table.items())
    return list(dict.fromkeys(maps))


def mapping_lines(columns: Mapping[str, Mapping[str, str]], rows: pd.DataFrame) -> Iterator[str]:
    """What was taken for what, by table, with the first value of each of our columns in the first table."""
    for number, (source, of_table) in enumerate(columns.items()):
        yield f"{source}:"
        for name, expression in of_table.items():
            first = rows.get(name, pd.Series(dtype=object)).dropna()
            example = f"  (as in {first.iloc[0]})" if len(first) and not number else ""
            yield f"  {name:16} {expression}{example}"
