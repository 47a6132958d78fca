"""From what a person types to a sweep: a file, a sweep in the runs directory, or a shipped one."""

from pathlib import Path
from typing import TYPE_CHECKING

from scalevec import sweeps
from scalevec.analysis.errors import nearest
from scalevec.orchestrator.errors import InvalidInputError, read_or_warn
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.foreign import require_sweep_file, require_table
from scalevec.results.sweep_folder import SweepFolder, sweep_names

if TYPE_CHECKING:
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
