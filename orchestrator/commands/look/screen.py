"""The state of sweeps on a screen of any size: a table of rungs by arms, with time, cost and causes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from scalevec.orchestrator.commands.look.cells import setting_words
from scalevec.orchestrator.commands.look.queued import controller_text, gone_text
from scalevec.orchestrator.progress import aligned, counted, duration, printable
from scalevec.results.run_directory import RESULT_STATES

Record = Mapping[str, Any]
NARROWEST_LABEL, WIDEST_LABEL = 12, 28
TITLE = 9
"""Columns before what a title stands for."""
MOST_OTHERS = 3
"""Sweeps beside the first that are named with a line each."""
_MARKS = {"running": "r", "failed": "f", "diverged": "d", "cancelled": "c", "unreadable": "u"}
_BAR = 20


@dataclass
class ScreenBlock:
    """Lines that belong together; where there is no room, those of the highest rank go, down to ``least``."""

    lines: list[Text]
    least: int = 1
    ranks: Sequence[int] = ()

    def shorten(self, excess: int) -> None:
        """Drop up to ``excess`` lines; one that says how many takes the place of the last."""
        cut = min(excess, len(self.lines) - self.least)
        if cut <= 0:
            return
        ranks = self.ranks or range(len(self.lines))
        order = sorted(range(len(self.lines)), key=lambda at: (ranks[at], at))
        kept = sorted(order[: len(self.lines) - cut - 1])
        more = len(self.lines) - len(kept)
        self.lines = [*(self.lines[at] for at in kept), Text(f"... {more} more lines", "dim")]


def screen(
    statuses: Sequence[Record], width: int, height: int | None = None, notes: Sequence[str] = ()
) -> Text:
    """Return what fits ``width`` x ``height`` characters (None: any height) of these sweeps.

    The first that somebody runs, or that may change, is shown whole, of each other one line.
    """
    in_turn = sorted(statuses, key=lambda status: (not status["owned"], not may_change(status)))
    shown = in_turn[0] if in_turn else None
    others = [status for status in statuses if status is not shown]
    blocks = [] if shown is None else _blocks(shown, width)
    if others:
        blocks.append(
            ScreenBlock([Text(f"{other['sweep']}: {counts_text(other)}") for other in others], MOST_OTHERS)
        )
    if notes:
        blocks.append(ScreenBlock([Text(f"warning: {note}", "yellow") for note in notes]))
    between = 1 if height is None else _fit(blocks, height)
    lines = [line for block in blocks for line in (*block.lines, *[Text()] * between)]
    lines = lines[: len(lines) - between][:height]
    for line in lines:
        line.plain = printable(line.plain)
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
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
    return f"{failure['label']}: {failure['error']}" + (
        f" ({rule})" if rule and failure["error"] not in rule else ""
    )


def _fit(blocks: Sequence[ScreenBlock], height: int) -> int:
    """Shorten blocks until they fit, the last first; return how many blank lines are between two."""

    def excess(between: int) -> int:
        return sum(len(block.lines) + between for block in blocks) - between - height

    if excess(1) <= 0:
        return 1
    for is_last_resort in (False, True):
        for block in reversed(blocks):
            block.least = 1 if is_last_resort else block.least
            block.shorten(excess(0))
    return 0


def _blocks(status: Record, width: int) -> list[ScreenBlock]:
    blocks = [ScreenBlock(list(_head(status, width)), least=6), table(status, width)]
    running = [trial for trial in status["running"] if trial["worker_alive"]]
    gone = [trial for trial in status["running"] if not trial["worker_alive"]]
    lines = [Text(line, "green") for line in _running_lines(running)]
    for trial in gone:
        job = status["queue"]["jobs"].get(trial["trial_id"])
        lines.append(Text(f"{trial['label']}: {gone_text(job, owned=status['owned'])}", "red"))
    if lines or (status["owned"] and status["waiting"]):
        blocks.append(_titled("running", lines or [Text("none at this moment")]))
    if status["waiting"]:
        blocks.append(
            _titled("waiting", [Text(f"{each['trials']} {each['reason']}") for each in status["waiting"]])
        )
    if status["failed"]:
        wrapped = [line for each in status["failed"] for line in wrap(failure_text(each), width - TITLE)]
        blocks.append(_titled("failed", [Text(line, "red") for line in wrapped], least=3))
    cautions = [trial["warning"] for trial in running if trial["warning"]]
    cautions += [status["seeds_without_effect"]] if status["seeds_without_effect"] else []
    cautions += [f"{name[:12]} unreadable: {problem}" for name, problem in status["problems"].items()]
    if cautions:
        blocks.append(_titled("warning", [Text(caution, "yellow") for caution in cautions]))
    return [block for block in blocks if block.lines]


def _titled(title: str, lines: Sequence[Text], least: int = 2) -> ScreenBlock:
    """``lines`` with the title before the first."""
    heads = [title, *[""] * (len(lines) - 1)]
    titled = [
        Text.assemble((f"{head:<{TITLE}}", "bold"), line) for head, line in zip(heads, lines, strict=True)
    ]
    return ScreenBlock(titled, least)


def _head(status: Record, width: int) -> Iterator[Text]:
    tuned = [part for line in chosen_lines(status) for part in wrap(line, width - TITLE)]
    yield from (Text(part, "bold") for part in wrap(f"{status['sweep']}: {counts_text(status)}", width))
    for title, words in (
        ("work", _work_text(status["plan"])),
        ("left", _left_text(status)),
        ("cost", _cost_text(status["cost"])),
        ("run by", _owner_text(status)),
        *(("" if at else "tuned", line) for at, line in enumerate(tuned)),
    ):
        if words:
            yield Text.assemble((f"{title:<{TITLE}}", "bold"), words)


def _work_text(plan: Record | None) -> str:
    if plan is None:
        return ""
    full = round(_BAR * plan["share_done"])
    bar = f"[{'#' * full}{'-' * (_BAR - full)}]"
    text = f"{bar} {plan['share_done']:.0%} of {duration(plan['planned_s'])} planned"
    if not plan["compared"]:
        return text
    ratio = plan["compared_measured_s"] / plan["compared_planned_s"]
    return f"{text}; so far {ratio:.2g} x that"


def _left_text(status: Record) -> str:
    of_stage, of_sweep = status["seconds_left"], status["sweep_seconds_left"]
    if of_sweep is None:
        return "" if of_stage is None else f"{status['stage']} about {duration(of_stage)}"
    if of_stage is None or status["stage"] is None or of_stage == of_sweep:
        return f"about {duration(of_sweep)}"
    return f"{status['stage']} about {duration(of_stage)}, sweep about {duration(of_sweep)}"


def _cost_text(cost: Record | None) -> str:
    if cost is None:
        return ""
    left = "" if cost["left"] is None else f", about {cost['left']:.3g} left"
    return f"{cost['spent']:.3g} {cost['unit']} spent{left}"


def _owner_text(status: Record) -> str:
    if status["queue"]["controller"]:
        return controller_text(status["queue"]["controller"], status["queue"]["unknown"])
    if not status["owned"]:
        return "nobody"
    silent_s = status["seconds_since_sign_of_life"]
    return "a scheduler" + ("" if silent_s is None else f", last sign of life {duration(silent_s)} ago")


def chosen_lines(status: Record) -> Iterator[str]:
    """Yield for each tuned field what was chosen for each arm, at the rungs that were tuned."""
    owners = {choice["arm"] for choice in status["chosen"]}
    shared = ", shared by all arms" if {cell["arm"] for cell in status["cells"]} - owners else ""
    for field in dict.fromkeys(choice["field"] for choice in status["chosen"]):
        of_field = [choice for choice in status["chosen"] if choice["field"] == field]
        tuned = [choice for choice in of_field if choice["status"] != "carried"] or of_field
        tuned.sort(key=lambda choice: choice["n_params"])
        rungs = list(dict.fromkeys(choice["rung"] for choice in tuned))
        arms = [
            f"{arm} {', '.join(_value(choice) for choice in tuned if choice['arm'] == arm)}"
            for arm in dict.fromkeys(choice["arm"] for choice in of_field)
        ]
        yield f"{field.replace('_', ' ')} at {', '.join(rungs)}: {'; '.join(arms)}{shared}"


def _value(choice: Record) -> str:
    return f"{choice['chosen']:.3g}{' (edge of the grid)' if choice['status'] == 'censored' else ''}"


def _running_lines(running: Sequence[Record]) -> Iterator[str]:
    rows = [
        (
            trial["label"],
            f"step {_known(trial['step'])}/{_known(trial['steps'])}",
            "" if trial["loss"] is None else f"loss {trial['loss']:.4f}",
            "" if trial["tokens_per_s"] is None else f"{trial['tokens_per_s']:,.0f} tokens/s",
        )
        for trial in running
    ]
    yield from aligned(rows, {0}) if rows else ()


def _known(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def table(status: Record, width: int) -> ScreenBlock:
    """Return the cells of the stage as rungs by arms; arms that do not fit side by side may become rows."""
    stage = status["stage"] or "comparison"
    cells = [cell for cell in status["cells"] if cell["stage"] == stage]
    if not cells:
        return ScreenBlock([])

    is_named = all(cell_len(_row(cell)) <= WIDEST_LABEL for cell in cells)

    def row(cell: Record) -> str:
        return _row(cell, is_named=is_named)

    def arm(cell: Record) -> str:
        return str(cell["arm"])

    block = _grid(cells, row, arm, width)
    if len(block.lines) > len(dict.fromkeys(map(row, cells))) + 1:
        block = min(block, _grid(cells, arm, row, width), key=lambda grid: len(grid.lines))
    names = "" if is_named else f"named by rung, {', '.join(cells[0]['setting'])}; "
    legend = wrap(names + _legend(cells, stage), width)
    block.lines += [Text(line, "dim") for line in legend]
    block.ranks = [*block.ranks, *[0] * len(legend)]
    return block


def _row(cell: Record, *, is_named: bool = True) -> str:
    """Return the rung and setting of a cell; where settings would not fit, their values alone."""
    setting: Mapping[str, str] = cell["setting"]
    return " ".join([cell["rung"], *(setting_words(setting) if is_named else setting.values())])


def _legend(cells: Sequence[Record], stage: str) -> str:
    marks = [
        f"{mark} {state}" for state, mark in _MARKS.items() if any(state in cell["states"] for cell in cells)
    ]
    return ", ".join(["done/all", *marks, *(["mean test loss"] if stage == "comparison" else [])])


def _grid(
    cells: Sequence[Record], row: Callable[[Record], str], column: Callable[[Record], str], width: int
) -> ScreenBlock:
    """Return the cells by row and column; columns that do not fit beside the others follow below."""
    by_place = {(row(cell), column(cell)): cell for cell in cells}
    rows, columns = (list(dict.fromkeys(map(name, cells))) for name in (row, column))
    is_told_apart = len({_padded(label, WIDEST_LABEL) for label in rows}) == len(rows)
    longest = min(max(map(cell_len, rows)), WIDEST_LABEL if is_told_apart else width // 2) + 2
    texts = _cell_texts(by_place)
    cell_width = max(map(len, texts.values()))
    label_width = min(longest, max(NARROWEST_LABEL, width - len(columns) * (cell_width + 2)))
    fitting = max(1, min((width - label_width) // (cell_width + 2), len(columns)))
    cell_width = max(cell_width, min(max(map(cell_len, columns)), (width - label_width) // fitting - 2))
    lines, ranks = list[Text](), list[int]()
    for start in range(0, len(columns), fitting):
        beside = columns[start : start + fitting]
        names = "  ".join(_padded(name, cell_width) for name in beside)
        lines.append(Text(f"{'':<{label_width}}{names}".rstrip(), "bold"))
        ranks.append(0)
        for label in rows:
            parts = [texts.get((label, name), "").ljust(cell_width) for name in beside]
            lines.append(Text(f"{_padded(label, label_width - 2)}  {'  '.join(parts)}".rstrip()))
            ranks.append(_rank([by_place[label, name] for name in beside if (label, name) in by_place]))
    return ScreenBlock(lines, 6, ranks)


def _padded(text: str, width: int) -> str:
    """``text`` in ``width`` characters on the screen; what does not fit ends in three dots."""
    text = printable(text)
    return set_cell_size(text, width) if cell_len(text) <= width else f"{set_cell_size(text, width - 3)}..."


def _rank(cells: Sequence[Record]) -> int:
    """Rows in which something happens stay longest, then those that are begun, then those that are done."""
    states = {state for cell in cells for state in cell["states"]}
    if states & {"running", "failed", "unreadable"}:
        return 1
    return 2 if len(states) > 1 else 3


def _cell_texts(cells: Mapping[tuple[str, str], Record]) -> dict[tuple[str, str], str]:
    """The cells as aligned text."""
    if not cells:
        return {}
    parts = [
        (
            f"{sum(cell['states'].get(state, 0) for state in RESULT_STATES)}/{cell['trials']}",
            " ".join(
                f"{mark}{cell['states'][state]}" for state, mark in _MARKS.items() if state in cell["states"]
            ),
            "" if cell["loss"] is None else f"{cell['loss']:.4f}",
        )
        for cell in cells.values()
    ]
    return dict(zip(cells, aligned(parts, {1}), strict=True))
