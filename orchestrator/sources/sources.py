"""SOURCE of the reading commands: a sweep (file or name) with its results, or a table from elsewhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scalevec import sweeps
from scalevec.analysis.errors import nearest
from scalevec.analysis.options import AnalysisOptions
from scalevec.orchestrator.attempts.retry_policy import unreadable
from scalevec.orchestrator.errors import Exit, InvalidInputError, read_or_warn
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.foreign import is_table, require_sweep_file, require_table, say_columns
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder, TrialsByCells, sweep_names
from scalevec.sweeps.fields import analysis_options

if TYPE_CHECKING:
    import pandas as pd

    from scalevec.results.index.store import ResultsIndex
    from scalevec.sweeps.sections.schema import Sweep


SWEEP_FILES = (".yaml", ".yml")
TABLES = (".csv", ".parquet")


def load_sweep(source: str, runs_dir: Path, *, look_for_files: bool = True) -> "Sweep":
    """Return the sweep that ``source`` names: an existing file, else in ``runs_dir``, else a shipped one.

    Of a sweep in ``runs_dir`` it is the file as it was last run or submitted; relative paths in it still
    count from the folder of the original. For a name, standard error gets a line that says what was chosen.
    Raises ``InvalidInputError`` where nothing has that name, ``SweepError`` for a file with mistakes.
    """
    from scalevec.sweeps.reading import read
    from scalevec.sweeps.yaml_source import read_file, read_text

    if _is_file(source):
        try:
            return read(read_file(Path(source)), look_for_files=look_for_files)
        except sweeps.SweepError:
            require_sweep_file(source)  # another tool's, or a table, is answered by what it is
            raise
    folder = SweepFolder.of(runs_dir, source) if source in sweep_names(runs_dir) else None
    content = folder.sweep() if folder else None
    if folder is not None and content is not None:
        note(f"sweep {source}: {folder.sweep_path}, as last run or submitted")
        path, text = folder.sweep_path, _text(folder.sweep_path, content)
        # Earlier versions kept no origin: paths count from the working directory.
        origin = read_or_warn(folder.origin, None, "paths in it count from the working directory") or Path()
    else:
        path, origin = _shipped(source, runs_dir), Path()
        note(f"sweep {source}: shipped with scalevec")
        text = path.read_text(encoding="utf-8")
    return read(read_text(text, str(path), origin), look_for_files=look_for_files)


def own_code(sweep: "Sweep") -> dict[str, bytes]:
    """The code that ``sweep`` brings along, by file: what is run only where a person agreed to it."""
    plugins = {name: content for plugin in sweep.found_plugins for name, content in plugin.files.items()}
    return plugins | _code_of_trainer(sweep)


def code_folders(sweep: "Sweep") -> list[Path]:
    """Where that code lies."""
    of_trainer = [] if sweep.trainer is None else [sweep.source.folder]
    return [*(plugin.parent for plugin in sweep.found_plugins), *of_trainer]


def _code_of_trainer(sweep: "Sweep") -> dict[str, bytes]:
    """The words of a trainer's command, and every file of the sweep's folder that it names."""
    from scalevec.sweeps.expansion.expand import code_files, expand
    from scalevec.sweeps.expansion.trials import NO_CORPUS

    if (section := sweep.trainer) is None:
        return {}
    folder = sweep.source.folder
    words = " ".join(section.words)
    files = {name: (folder / name).read_bytes() for name in code_files(expand(sweep, NO_CORPUS))}
    return {f"command: {words}": words.encode(), **files}


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path}: is no text in UTF-8 ({error})") from None


def sweep_folder(source: str, runs_dir: Path) -> SweepFolder:
    """Return the folder in ``runs_dir`` of the sweep that ``source`` names. Raises as :func:`load_sweep`."""
    from scalevec.sweeps.reading import read
    from scalevec.sweeps.yaml_source import read_file

    is_file = _is_file(source)
    if not is_file and source in sweep_names(runs_dir):
        return SweepFolder.of(runs_dir, source)
    if is_file:
        require_sweep_file(source)
    text = read_file(Path(source) if is_file else _shipped(source, runs_dir))
    data = text.data if isinstance(text.data, dict) else {}
    known = SweepFolder.of(runs_dir, data["name"]) if data.get("name") in sweep_names(runs_dir) else None
    kept = read_or_warn(known.sweep, None, "whether the file was changed is not known") if known else None
    if known and kept == text.text.encode():  # checked when it was run
        return known
    try:
        sweep = read(text, look_for_files=False)
    except sweeps.SweepError:
        if known and data.get("plugins"):  # they may be gone: its results are there
            return known
        raise
    folder = SweepFolder.of(runs_dir, sweep.name)
    if is_file and kept is not None:
        note(f"{source} has changed since sweep {sweep.name} was run: what follows is of {folder.sweep_path}")
    return folder


def _is_file(source: str) -> bool:
    """Whether ``source`` is a file. Raises ``InvalidInputError`` for a sweep file that is not there."""
    if Path(source).is_file():
        return True
    if Path(source).suffix in SWEEP_FILES:
        raise InvalidInputError(f"{source}: no such file")
    return False


def _shipped(source: str, runs_dir: Path) -> Path:
    """Return the path of a shipped sweep. Raises ``InvalidInputError``: nothing else has that name either."""
    try:
        return sweeps.shipped(source)
    except FileNotFoundError as error:
        if Path(source).is_dir():
            require_table(source)
            how = "scalevec import makes a table of runs of MLflow or TensorBoard in it"
            raise InvalidInputError(f"{source} is a folder, and no sweep file\n{how}") from None
        if Path(source).exists():
            raise InvalidInputError(f"{source} is no regular file; copy what it holds into one") from None
        known = sweep_names(runs_dir)
        raise InvalidInputError(
            f"{source}: no such file ({', '.join((*SWEEP_FILES, *TABLES))}), no sweep of that name in "
            f"{runs_dir} ({nearest(source, known) if known else 'there are none'}), and {error}"
        ) from None


Record = dict[str, Any]
VERDICTS, DROPPED, PREDICTIONS, DECLARED = "verdicts", "dropped", "predictions", "declared"
"""What a sweep's table brings along in ``attrs`` (``analysis.comparison.plan`` and ``.predictions``)."""
Answer = TypeVar("Answer")
REMEDY = (
    "an index holds nothing that the run directories do not: drop its tables "
    "scalevec_trials_* (or remove its file), and `scalevec store rebuild` makes them again"
)
UNREADABLE = "unreadable"
"""The state of a trial whose records cannot be read."""


@dataclass(frozen=True)
class Source:
    """Tidy rows and the questions that their sweep asks; ``folder`` is None for a table from elsewhere."""

    name: str
    rows: "pd.DataFrame"
    folder: SweepFolder | None = None
    compare: Mapping[str, Any] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def open_source(source: str, runs_dir: Path, maps: Sequence[str] | None = None) -> Source:
    """Return the sweep or table that ``source`` names; of a table ``maps`` say what its columns are.

    Raises :class:`InvalidInputError` or ``DataError`` where it names nothing usable.
    """
    if maps or is_table(source):
        from scalevec.orchestrator.sources.imports.given_tables import read_given
        from scalevec.orchestrator.sources.imports.tidy_rows import as_read

        table = as_read(read_given(source), maps or ())
        say_columns(table)
        return Source("standard-input" if source == "-" else Path(source).stem, table.rows)
    sweep = open_sweep(source, runs_dir)
    for name, problem in sweep.problems.items():
        note(f"warning: {name[:12]}: {problem}")
    return sweep


def open_sweep(source: str, runs_dir: Path) -> Source:
    """Return the results of a sweep so far, read from its run directories through the index."""
    from scalevec.results.tidy import tidy_table

    folder = sweep_folder(source, runs_dir)
    members = folder.members()
    if members is None:
        run = f"scalevec run {source} --runs {runs_dir}"
        raise InvalidInputError(f"sweep {folder.name} has not been run in {runs_dir}; to run it: {run}")
    rows, problems = indexed_rows(runs_dir, [member["trial_id"] for member in members])
    table = tidy_table(rows, members, folder.name)
    none: list[dict[str, Any]] = []
    table.attrs |= {
        VERDICTS: read_or_warn(folder.verdicts, none, "verdicts that were given are not known"),
        DROPPED: read_or_warn(folder.dropped, none, "dropped trials are not known"),
        PREDICTIONS: read_or_warn(folder.predictions, none, "what was predicted is left out"),
    }
    question = read_or_warn(folder.question, None, "what was asked before the results is not known")
    table.attrs |= {DECLARED: question} if question else {}
    return Source(folder.name, table, folder, compare_section(folder), problems)


def with_index(runs_dir: Path, use: "Callable[[ResultsIndex], Answer]") -> Answer:
    """Return what ``use`` makes of the index of RUNS_DIR in the chosen store.

    A damaged one in the cache, where nobody keeps anything else, is set aside, said, and ``use`` called again
    with an empty one. Raises ``StoreError``: a store that a person named is left as it is.
    """
    from scalevec.results.index.database import (
        StoreDamagedError,
        StoreError,
        named_store,
        set_aside,
        store_url,
    )
    from scalevec.results.index.store import ResultsIndex

    url = store_url(runs_dir)
    try:
        with ResultsIndex(url) as index:
            return use(index)
    except StoreDamagedError as damage:
        if named_store():
            raise StoreError(f"{damage}; {REMEDY}") from None
        note(f"warning: {damage}; moved to {set_aside(url)}, and rebuilt from the run directories")
    with ResultsIndex(url) as index:
        return use(index)


def check_named_store(runs_dir: Path) -> None:
    """Open the store that a person named, before anything is spent. Raises ``StoreError``.

    Later it may come and go: no trial needs it.
    """
    from scalevec.results.index.database import named_store

    if named_store():
        with_index(runs_dir, lambda _: None)


def indexed_rows(runs_dir: Path, ids: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the up-to-date index rows of trials, and by trial what could not be read."""

    def read(index: "ResultsIndex") -> tuple[list[dict[str, Any]], dict[str, str]]:
        report = index.collect(runs_dir, ids)
        return index.rows(runs_dir, ids), report.problems

    return with_index(runs_dir, read)


def states_of(runs_dir: Path, ids: Sequence[str]) -> dict[str, str]:
    """Return the state of each trial: for commands whose work is done without the index.

    Where the store cannot be used, standard error says so, and the states are read from the run directories;
    it also says why a trial is ``UNREADABLE``.
    """
    from scalevec.results.index.database import StoreError

    try:
        states, problems = with_index(runs_dir, lambda index: index.current_states(runs_dir, ids))
    except (StoreError, OSError) as error:
        later = "the run directories have everything; scalevec status brings the index up to date later"
        note(f"warning: {error}; {later}")
        return {name: recorded_state(RunDirectory.of(runs_dir, name)) for name in ids}
    for name, problem in problems.items():
        _note_unreadable(RunDirectory.of(runs_dir, name), problem)
    return states | dict.fromkeys(problems, UNREADABLE)


def recorded_states(source: str, runs_dir: Path) -> list[tuple[RunDirectory, str]]:
    """Return the trials of a sweep that have a run directory, each with its state."""
    folder = sweep_folder(source, runs_dir)
    members = folder.members() or []
    ids = sorted({member["trial_id"] for member in members})
    directories = [RunDirectory.of(runs_dir, trial_id) for trial_id in ids]
    return [(directory, recorded_state(directory)) for directory in directories if directory.path.is_dir()]


def recorded_state(directory: RunDirectory) -> str:
    """Return a trial's state; ``UNREADABLE``, with a line on standard error, where its records are."""
    try:
        return directory.state().state
    except (CorruptRecordError, OSError) as problem:
        _note_unreadable(directory, problem)
        return UNREADABLE


def _note_unreadable(directory: RunDirectory, problem: Exception | str) -> None:
    note(f"{directory.trial_id[:12]}: {unreadable(directory, problem)}")


def exit_after(states: Sequence[tuple[RunDirectory, str]]) -> Exit:
    """Return exit code 1 if any trial's records are unreadable."""
    return Exit.SOME_FAILED if any(state == UNREADABLE for _, state in states) else Exit.DONE


def choices_of(source: Source) -> list[dict[str, Any]]:
    """Return the frozen choices of a sweep as plain values; a table has none."""
    return tuning_choices(source.folder) if source.folder else []


def members_or_none(folder: SweepFolder) -> TrialsByCells:
    """Return the trials of one sweep of several: none where they cannot be read, which is said."""
    return read_or_warn(folder.members_by_cells, TrialsByCells(), f"sweep {folder.name} is left out")


def tuning_choices(folder: SweepFolder) -> list[Record]:
    """Return the frozen choices of a sweep as plain values; none where they cannot be read, which is said."""
    from scalevec.orchestrator.tuning import choices

    def read() -> list[Record]:
        tuned = (folder.resolved() or {}).get("tune")
        content = choices.to_json(choices.from_json(folder.tuning(), tuned or ()))["choices"]
        return list(content)

    return read_or_warn(read, [], f"the choices of sweep {folder.name} are left out")


def compare_section(folder: SweepFolder) -> Record:
    """Return what the sweep asks of its comparison: as resolved when it ran, else by its kept file."""

    def resolved() -> Record:
        return _options(folder.resolved_path, (folder.resolved() or {}).get("compare", {}))

    def given() -> Record:
        sweep = load_sweep(folder.name, folder.path.parents[1], look_for_files=False)
        return _options(folder.sweep_path, sweep.resolved()["compare"])

    section = read_or_warn(
        resolved, None, f"the options of the comparison are taken from {folder.sweep_path.name}"
    )
    return (
        read_or_warn(given, {}, "options of the comparison are the defaults") if section is None else section
    )


def _options(path: Path, section: Any) -> Record:
    """``section`` if it holds options of an analysis. Raises ``CorruptRecordError``."""
    try:
        AnalysisOptions(**analysis_options(section))
        if not isinstance(section.get("reference", ""), str):
            raise TypeError(f"reference is {section['reference']!r:.80}")
    except (AttributeError, TypeError, ValueError) as error:
        raise CorruptRecordError(path, f"has no usable section compare ({error})") from None
    return dict(section)


def environments_of(directory: RunDirectory) -> list[Record]:
    """Return the environment of each attempt; none where they cannot be read, which is said."""
    return read_or_warn(directory.environments, [], "machine and code are left out")
