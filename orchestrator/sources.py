"""SOURCE of the reading commands: a sweep (file or name) with its results, or a table from elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import choices
from orchestrator.errors import Refused
from results.sweep_folder import SweepFolder, sweep_names

if TYPE_CHECKING:
    import pandas as pd

TABLES = (".csv", ".parquet")
SWEEP_FILES = (".yaml", ".yml")
X_NAMES = {"n_params": "N", "n_tokens": "D", "flops": "C"}


@dataclass(frozen=True)
class Source:
    """Tidy rows and the questions that their sweep asks; ``folder`` is None for a table from elsewhere."""

    name: str
    rows: "pd.DataFrame"
    folder: SweepFolder | None = None
    compare: Mapping[str, Any] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def open_source(source: str, runs_dir: Path) -> Source:
    """What ``source`` names. Raises :class:`Refused` or ``DataError`` where it names nothing usable."""
    if Path(source).suffix in TABLES:
        import analysis

        return Source(Path(source).stem, analysis.read_table(source))
    return open_sweep(source, runs_dir)


def open_sweep(source: str, runs_dir: Path) -> Source:
    """The results of a sweep so far, from its run directories by way of the index."""
    from results.tidy import tidy_table

    folder = sweep_folder(source, runs_dir)
    members = folder.members()
    if members is None:
        raise Refused(f"sweep {folder.name} has not been run in {runs_dir}; scalevec run {source}")
    rows, problems = indexed_rows(runs_dir, [member["trial_id"] for member in members])
    compare = (folder.resolved() or {}).get("compare", {})
    return Source(folder.name, tidy_table(rows, members, folder.name), folder, compare, problems)


def indexed_rows(runs_dir: Path, ids: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The index's rows of trials, brought up to date first; and what could not be read."""
    from results.index import ResultsIndex, default_url

    with ResultsIndex(default_url(runs_dir)) as index:
        report = index.collect(runs_dir, ids)
        return index.rows(ids), report.problems


def sweep_folder(source: str, runs_dir: Path) -> SweepFolder:
    """The folder of a sweep, named by its file or its name."""
    name = source
    if Path(source).suffix in SWEEP_FILES:
        import sweeps

        name = sweeps.load(source).name
    elif name not in sweep_names(runs_dir):
        known = ", ".join(sweep_names(runs_dir)) or "none"
        raise Refused(
            f"{source}: no sweep of that name in {runs_dir} (there are: {known}), and neither a sweep file "
            f"({', '.join(SWEEP_FILES)}) nor a table ({', '.join(TABLES)})"
        )
    return SweepFolder.of(runs_dir, name)


def tuning_choices(source: Source) -> list[dict[str, Any]]:
    """The frozen choices of a sweep as plain values."""
    content = source.folder.tuning() if source.folder else None
    return choices.to_json(choices.from_json(content))["choices"] if content else []


def training_curves(source: Source, runs_dir: Path) -> "pd.DataFrame":
    """Training loss against tokens of the comparison trials: trial_id, arm, rung, seed, tokens, loss."""
    import pandas as pd

    from results.run_directory import RunDirectory

    frames = []
    compared = source.rows[(source.rows["stage"] == "comparison") & (source.rows["status"] != "pending")]
    for row in compared.to_dict("records"):
        metrics = RunDirectory.of(runs_dir, row["trial_id"]).metrics()
        frame = pd.DataFrame(metrics, columns=["tokens", "loss"])
        frames.append(frame.assign(**{name: row[name] for name in ("trial_id", "arm", "rung", "seed")}))
    columns = ["trial_id", "arm", "rung", "seed", "tokens", "loss"]
    return pd.concat(frames)[columns] if frames else pd.DataFrame(columns=columns)
