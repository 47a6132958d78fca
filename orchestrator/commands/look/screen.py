"""The state of sweeps as text: what runs, what failed and how long it takes, then rungs by arms.

``watch`` reads it again and again, for a whole terminal or for a pipe.
"""

import io
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scalevec.analysis.formatting import aligned
from scalevec.orchestrator.cli.output import command, json_line
from scalevec.orchestrator.commands.look.queued import controller_text, gone_text, jobs_text, remedy_text
from scalevec.orchestrator.commands.look.sweep_state import place_of, sweep_statuses
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.progress import counted, duration, note, notes_kept, printable
from scalevec.results.claims import ClaimObserver
from scalevec.results.run_directory import RESULT_STATES

Record = dict[str, Any]
TITLE, GAP = 9, 2
"""Columns before what a title stands for, and between two columns of a table."""
SHARE = 8
"""On a screen a list (what failed, runs, waits) takes one line of so many, and at least one."""
ID = 8
"""Digits of a trial's id: enough for ``explain`` and ``logs``."""
_MARKS = {"running": "r", "failed": "f", "diverged": "d", "cancelled": "c", "unreadable": "u"}
_BAR = 20
MOST_ROWS = 60
"""Of the table: with more, a rung's settings share one."""
WATCH_S = 2.0
Reading = tuple[list[Record], list[str]]
"""The states of sweeps, and what reading them had to say."""


def screen(
    statuses: Sequence[Record], width: int, height: int | None = None, notes: Sequence[str] = ()
) -> Text:
    """Return the sweep that somebody runs, else the first that may change, whole; of each other one line.

    Args:
        statuses: What :func:`~scalevec.orchestrator.commands.look.sweep_state.sweep_statuses` returns.
        width: Columns; longer lines are folded.
        height: Lines, at most: the last says how many more there are. None: no limit.
        notes: What reading the sweeps had to say.
    """
    first, *others = sorted(statuses, key=lambda status: (not status["owned"], not may_change(status)))
    most = None if height is None else max(1, height // SHARE)
    parts: list[RenderableType] = [
        _text(f"{first['sweep']}: {counts_text(first)}", "bold"),
        _facts_table(first, width, most),
    ]
    parts += [_text(f"{other['sweep']}: {counts_text(other)}") for other in others[:most]]
    parts += [_text(f"and {len(others) - most} more sweeps")] if most and len(others) > most else []
    parts += [_text(f"warning: {text}", "yellow") for text in notes]
    lines = _lines([*parts, *_table(first, width)], width)
    if height is not None and len(lines) > height:
        more = f"... {len(lines) - height + 1} more lines; all of them: scalevec status | less"
        lines[height - 1 :] = [Text(more[:width], "dim")]
    return Text("\n").join(lines)


def may_change(status: Record) -> bool:
    """Whether the sweep is still to begin, somebody advances it, or a job of it waits or lives."""
    lives = any(trial["worker_alive"] for trial in status["running"])
    in_queue = any(job["state"] for job in status["queue"]["jobs"].values())
    return (
        status["owned"] or lives or in_queue or bool(status["states"].get("queued")) or not status["trials"]
    )


def missing(status: Record) -> int:
    """How many trials have no result, those among them that have no names yet."""
    left = sum(count for state, count in status["states"].items() if state not in RESULT_STATES)
    return int(left + status["to_come"])


def counts_text(status: Record) -> str:
    """Return ``comparison, 3 of 12 trials done (1 diverged), 2 running, 6 waiting, 1 failed``."""
    states, everyone = dict(status["states"]), status["trials"] + status["to_come"]
    if not everyone:
        return "being prepared" if status["owned"] else "not begun"
    diverged, running = (states.pop(state, 0) for state in ("diverged", "running"))
    done = states.pop("completed", 0) + diverged
    kept = {state: states.pop(state, 0) for state in ("failed", "cancelled", "unreadable")}
    counts = {"running": running, "waiting": sum(states.values()) + status["to_come"], **kept}
    words = [f"{done} of {counted(everyone, 'trial')} done{f' ({diverged} diverged)' if diverged else ''}"]
    words += [f"{count} {state}" for state, count in counts.items() if count]
    return ", ".join([status["stage"], *words] if status["stage"] else words)


def failure_text(failure: Record) -> str:
    """Return which trial failed and why, the cause before the rule by which it was given up."""
    rule = failure["reason"] or failure["cause"]
    rule = f" ({rule})" if rule and failure["error"] not in rule else ""
    return f"{failure['trial_id'][:ID]}  {failure['label']}: {failure['error']}{rule}"


def chosen_lines(status: Record) -> Iterator[str]:
    """Yield for each tuned field what was chosen for each arm, at the rungs that were tuned."""
    owners = {choice["arm"] for choice in status["chosen"]}
    shared = ", shared by all arms" if {cell["arm"] for cell in status["cells"]} - owners else ""
    for field in dict.fromkeys(choice["field"] for choice in status["chosen"]):
        of_field = [choice for choice in status["chosen"] if choice["field"] == field]
        tuned = [choice for choice in of_field if choice["status"] != "carried"] or of_field
        tuned.sort(key=lambda choice: choice["n_params"])
        rungs = list(dict.fromkeys(choice["rung"] for choice in tuned))
        texts = []
        for arm in dict.fromkeys(choice["arm"] for choice in tuned):
            of_arm = [choice for choice in tuned if choice["arm"] == arm]
            texts.append(f"{arm} {_values_text(of_arm, one_each=len(of_arm) <= len(rungs))}")
        yield f"{field.replace('_', ' ')} at {', '.join(rungs)}: {'; '.join(texts)}{shared}"


def _values_text(chosen: Sequence[Record], *, one_each: bool) -> str:
    """The values that were ``chosen`` at the rungs, or between which they lie where settings differ."""
    if one_each:
        edges = (" (edge of the grid)" if choice["status"] == "censored" else "" for choice in chosen)
        return ", ".join(f"{choice['chosen']:.3g}{edge}" for choice, edge in zip(chosen, edges, strict=True))
    values = [choice["chosen"] for choice in chosen]
    at_edge = sum(choice["status"] == "censored" for choice in chosen)
    return f"{min(values):.3g} to {max(values):.3g}" + (
        f" ({at_edge} at the edge of a grid)" if at_edge else ""
    )


def _text(words: str, style: str = "") -> Text:
    """``words`` that cannot command the terminal, and whose brackets are no markup."""
    return Text(printable(words), style, overflow="fold")


def _lines(parts: Iterable[RenderableType], width: int) -> list[Text]:
    """``parts`` below each other, as rich lays them out."""
    lines = []
    for segments in Console(width=width, file=io.StringIO()).render_lines(Group(*parts), pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        line.truncate(width)
        lines.append(line)
    return lines


def _facts_table(status: Record, width: int, most: int | None) -> Table:
    table = Table.grid(padding=(0, GAP, 0, 0))
    table.add_column(width=TITLE - GAP, style="bold")
    table.add_column(overflow="fold")
    for title, style, facts in _facts(status):
        lines = [_text(fact, style) for fact in facts]
        if most is not None:  # on a screen no list and no error takes the room of the others
            more = len(lines) - most
            lines = [*lines[:most], Text(f"and {more} more")] if more > 0 else lines
            for line in lines:
                line.truncate(2 * (width - TITLE), overflow="ellipsis")
        if lines:
            table.add_row(title, Text("\n").join(lines))
    return table


def _facts(status: Record) -> Iterator[tuple[str, str, Iterable[str]]]:
    """Yield title, style and lines of what is known of the sweep as a whole, the answers first."""
    left = status["seconds_left"]
    yield "left", "", [] if left is None else [f"about {duration(left)}"]
    yield "failed", "red", map(failure_text, status["failed"])
    yield "running", "green", _running_lines(status)
    yield "waiting", "", map(_waiting_text, status["waiting"])
    yield "warning", "yellow", _warnings(status)
    yield "run by", "", [_owner_text(status)]
    yield "work", "", _work_lines(status["plan"], status["cost"])
    yield "tuned", "", chosen_lines(status)


def _work_lines(plan: Record | None, cost: Record) -> Iterator[str]:
    if plan is not None:
        full = round(_BAR * plan["share_done"])
        text = (
            f"[{'#' * full}{'-' * (_BAR - full)}] {plan['share_done']:.0%} of {duration(plan['planned_s'])}"
        )
        yield f"{text} planned" + ("" if plan["pace"] is None else f"; so far {plan['pace']:.2g} x that")
    if cost["spent"] or cost["left"]:
        left = f", about {cost['left']:.3g} left" if cost["left"] else ""
        yield f"{cost['spent']:.3g} {cost['unit']} spent{left}"


def _running_lines(status: Record) -> Iterator[str]:
    jobs, rows = status["queue"]["jobs"], []
    for trial in status["running"]:
        named, job = (trial["trial_id"][:ID], trial["label"]), jobs.get(trial["trial_id"])
        if not trial["worker_alive"]:
            yield f"{'  '.join(named)}: {gone_text(job, owned=status['owned'])}"
            continue
        step, steps = ("?" if trial[name] is None else f"{trial[name]:,}" for name in ("step", "steps"))
        loss = "" if trial["loss"] is None else f"loss {trial['loss']:.4f}"
        speed = "" if trial["tokens_per_s"] is None else f"{trial['tokens_per_s']:,.0f} tokens/s"
        on = f" on {job['node']}" if job and job["node"] else ""
        rows.append((*named, f"step {step}/{steps}", loss, speed, f"job {job['job']}{on}" if job else ""))
    yield from aligned(rows, {0, 1, 2, 3, 5}) if rows else ()


def _waiting_text(waiting: Record) -> str:
    jobs = f", {jobs_text(waiting['jobs'])}" if waiting["jobs"] else ""
    return f"{waiting['trials']} {waiting['reason']}{jobs}{remedy_text(waiting)}"


def _warnings(status: Record) -> Iterator[str]:
    for trial in status["running"]:
        if trial["warning"]:
            yield f"{trial['trial_id'][:ID]}  {trial['label']}: {trial['warning']}"
    for trial_id, problem in status["problems"].items():
        yield f"{trial_id[:ID]} unreadable: {problem}"


def _owner_text(status: Record) -> str:
    if status["queue"]["controller"]:
        return controller_text(status["queue"]["controller"], status["queue"]["unknown"])
    return "a scheduler" if status["owned"] else "nobody"


def _table(status: Record, width: int) -> Iterator[RenderableType]:
    """Yield the cells of the stage as rungs by arms; arms that do not fit beside the others follow below."""
    stage = status["stage"] or "comparison"
    cells = {
        (place_of(cell["rung"], cell["setting"]), cell["arm"]): cell
        for cell in status["cells"]
        if cell["stage"] == stage
    }
    if not cells:
        return
    rungs = {cell["rung"] for cell in cells.values()}
    is_folded = len({row for row, _ in cells}) > max(MOST_ROWS, len(rungs))
    cells = _folded(cells) if is_folded else cells
    texts = dict(zip(cells, aligned(list(map(_cell_parts, cells.values())), {1}), strict=True))
    rows, arms = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    cell_width = max(map(len, texts.values()))
    beside = max(1, (width - min(max(map(cell_len, rows)), width // 3)) // (cell_width + GAP))
    groups = [arms[start : start + beside] for start in range(0, len(arms), beside)]
    for group in groups:
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
        table.add_column(overflow="fold")
        for arm in group:
            table.add_column(_text(arm), min_width=cell_width, overflow="fold")
        for row in rows:
            table.add_row(_text(row), *(texts.get((row, arm), "") for arm in group))
        yield ""
        yield table
    marks = [f"{mark} {state}" for state, mark in _MARKS.items() if state in status["states"]]
    loss = "lowest mean test loss of the settings (all: --json)" if is_folded else "mean test loss"
    legend = ["done/all", *marks, *([loss] if stage == "comparison" else [])]
    yield Text(", ".join(legend), "dim")


def _folded(cells: Mapping[tuple[str, str], Record]) -> dict[tuple[str, str], Record]:
    """One cell for all settings of a rung and an arm: its trials, and the lowest of the mean losses."""
    rungs = Counter(rung for rung, _ in {(cell["rung"], row): None for (row, _), cell in cells.items()})
    folded: dict[tuple[str, str], Record] = {}
    for (_, arm), cell in cells.items():
        row = f"{cell['rung']}, {counted(rungs[cell['rung']], 'setting')}"
        whole = folded.setdefault((row, arm), {"trials": 0, "states": Counter(), "loss": None})
        whole["trials"] += cell["trials"]
        whole["states"].update(cell["states"])
        whole["loss"] = min(
            (loss for loss in (whole["loss"], cell["loss"]) if loss is not None), default=None
        )
    return folded


def _cell_parts(cell: Record) -> tuple[str, str, str]:
    states = cell["states"]
    return (
        f"{sum(states.get(state, 0) for state in RESULT_STATES)}/{cell['trials']}",
        " ".join(f"{mark}{states[state]}" for state, mark in _MARKS.items() if state in states),
        "" if cell["loss"] is None else f"{cell['loss']:.4f}",
    )


def state_of_run(sweep: str, runs_dir: Path) -> Callable[[int, int], Text]:
    """Return what looks at a sweep that runs in this process, for a screen of so many columns and lines."""
    observer = ClaimObserver()

    def look(width: int, height: int) -> Text:
        with notes_kept():  # the run itself tells what it meets
            return screen(sweep_statuses(sweep, runs_dir, observer), width, height)

    return look


def watch(source: str | None, runs_dir: Path, *, as_json: bool) -> Exit:
    """Show sweeps until nothing of them can change any more, and say how they ended."""
    console, readings = Console(), _readings(source, runs_dir)
    fills = console.is_terminal and not console.is_dumb_terminal and not as_json
    try:
        statuses = _fill(readings, console) if fills else _print_changes(readings, as_json=as_json)
    except KeyboardInterrupt:
        note("scalevec: stopped watching; what runs goes on")
        return Exit.INTERRUPTED
    if not as_json:
        console.print(screen(statuses, console.width), highlight=False)
        for status in statuses:
            print(printable(_ending(status, runs_dir)), flush=True)
    return Exit.DONE


def _readings(source: str | None, runs_dir: Path) -> Iterator[Reading]:
    """Look until nothing can change any more; before the first run of a sweep, wait for it."""
    observer = ClaimObserver()
    while True:
        with notes_kept() as notes:
            statuses = sweep_statuses(source, runs_dir, observer)
        yield statuses, list(dict.fromkeys(notes))
        begun = [status for status in statuses if status["trials"]]
        if statuses and not any(map(may_change, begun or statuses)):
            return
        time.sleep(WATCH_S)


def _print_changes(readings: Iterable[Reading], *, as_json: bool) -> list[Record]:
    """Print each sweep that has changed, as one object or its counts; return the last states."""
    statuses: list[Record] = []
    before, told = set[str](), set[str]()
    for statuses, notes in readings:
        for text in notes:
            if text not in told:
                note(text)
        told.update(notes)
        lines = [json_line(each) if as_json else f"{each['sweep']}: {counts_text(each)}" for each in statuses]
        for line in lines:
            if line not in before:
                print(printable(line), flush=True)
        before = set(lines)
    return statuses


def _fill(readings: Iterable[Reading], console: Console) -> list[Record]:
    """Fill the terminal with each reading; return the last states."""
    statuses: list[Record] = []
    shown = None
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for statuses, notes in readings:
            text = screen(statuses, *console.size, notes) if statuses else Text("nothing is run yet")
            if (text.plain, console.size) != shown:  # the line may be slow
                live.update(text, refresh=True)
            shown = text.plain, console.size
    return statuses


def _ending(status: Record, runs_dir: Path) -> str:
    left = missing(status)
    if not left:
        return f"{status['sweep']}: every trial has a result"
    # What has failed runs again only after a retry.
    verb = "retry" if left == status["states"].get("failed") else "run"
    again = command(verb, status["sweep"], runs_dir)
    return (
        f"{status['sweep']}: nobody runs it any more; {counted(left, 'trial')} without a result. "
        f"To go on: {again}"
    )
