"""Where each arm's law expects its next rung, from the rungs that are finished so far.

It says nothing of differences between arms: to watch a sweep is no look at its comparison.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.sources.records import compare_section
from scalevec.orchestrator.sources.sources import with_index
from scalevec.results.run_directory import OPEN_STATES
from scalevec.results.sweep_folder import SweepFolder

if TYPE_CHECKING:
    from scalevec.analysis.options import AnalysisOptions
    from scalevec.orchestrator.commands.look.cells import SweepLook

FEWEST_RUNGS = 3
Record = dict[str, Any]
_OF_THE_LAW = ("law", "x", "loss", "delta", "residual", "n_convention", "c_convention", "fix", "bound")


class LawsAhead:
    """Fits laws, and remembers what they expect until further results come."""

    def __init__(self) -> None:
        self._expected: dict[tuple[str, ...], float | None] = {}

    def added(self, look: "SweepLook", cells: Sequence[Record]) -> list[Record]:
        """Return ``cells`` with what is expected of each arm's next rung in ``expected``, nats/token."""
        lines: defaultdict[tuple[Any, ...], list[Record]] = defaultdict(list)
        for cell in cells:
            if cell["stage"] == "comparison" and cell["n_params"]:
                lines[cell["arm"], *cell["setting"].items()].append(cell)
        for line in lines.values():
            finished = [cell for cell in line if _is_finished(cell)]
            following = [cell for cell in line if not _is_finished(cell)]
            if len(finished) >= FEWEST_RUNGS and following:
                following[0]["expected"] = self._next(look, finished, following[0])
        return [{name: value for name, value in cell.items() if name != "entries"} for cell in cells]

    def _next(self, look: "SweepLook", finished: Sequence[Record], cell: Record) -> float | None:
        entries = [entry for of in finished for entry in of["entries"] if look.loss(entry) is not None]
        key = (look.folder.name, cell["rung"], *(entry["trial_id"] for entry in entries))
        if key not in self._expected:
            self._expected[key] = _expected(look, entries, cell["entries"][0])
        return self._expected[key]


def _is_finished(cell: Record) -> bool:
    """Whether nothing of the cell is open any more, and something of it was completed."""
    return cell["loss"] is not None and not any(state in OPEN_STATES for state in cell["states"])


def _expected(look: "SweepLook", entries: Sequence[Record], at: Record) -> float | None:
    """The law of ``entries``, of one arm, at the trial ``at``: the sweep's own law, else a power law in C."""
    from scalevec import analysis
    from scalevec.results.tidy import tidy_table

    ids = [entry["trial_id"] for entry in entries]
    rows = with_index(look.runs_dir, lambda index: index.rows(look.runs_dir, ids))
    results = tidy_table(rows, list(entries), look.folder.name)
    point = tidy_table([], [at], look.folder.name).dropna(axis=1, how="all")
    for options in (_options(look.folder), analysis.AnalysisOptions(law="power", x="C")):
        try:
            [forecast] = analysis.predict(
                results, point, options=options, bootstrap=0, hold_out="none", interval="none"
            )
        except analysis.DataError:
            continue
        return forecast.points[0].value
    return None


def _options(folder: SweepFolder) -> "AnalysisOptions":
    from scalevec.analysis.options import AnalysisOptions
    from scalevec.sweeps.options import analysis_options

    asked: Mapping[str, Any] = analysis_options(compare_section(folder))
    return AnalysisOptions(**{name: asked[name] for name in _OF_THE_LAW if asked.get(name) is not None})
