"""From what a person types to a sweep: a file, a sweep in the runs directory, or a shipped one.

What is a table of results, or neither, is answered by what it is.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from scalevec.analysis.data.read import head_of, kind_of, text_of
from scalevec.orchestrator.errors import InvalidInputError, read_or_warn
from scalevec.orchestrator.progress import note
from scalevec.results.sweep_folder import SweepFolder, sweep_names

if TYPE_CHECKING:
    from scalevec.sweeps.sections.schema import Sweep

SWEEP_FILES = (".yaml", ".yml")
TABLES = (".csv", ".parquet")
STANDARD_INPUT = "-"
_SCRIPT = "for a sweep over a script of your own: scalevec init --from own-trainer makes a sweep file for it"
_TABLE = "write its results as a table that can be read: .csv, .tsv, .jsonl or .parquet (pandas: to_parquet)"
_LINES = "with one object on each line it can be read as a table: jq -c '.[]' FILE > FILE.jsonl for a list"
_WANDB = "export the table of runs from W&B as CSV: scalevec import reads that"
_SWEEP = "a sweep file has ladder and arms; scalevec init writes one, for a script with --from own-trainer"
_OURS = {"ladder", "arms", "corpus", "tune", "simulate"}


def load_sweep(source: str, runs_dir: Path, *, look_for_files: bool = True) -> "Sweep":
    """Return the sweep that ``source`` names: an existing file, else in ``runs_dir``, else a shipped one.

    Of a sweep in ``runs_dir`` it is the file as it was last run or submitted; relative paths in it still
    count from the folder of the original. For a name, standard error gets a line that says what was chosen.
    Raises ``InvalidInputError`` where nothing has that name, ``SweepError`` for a file with mistakes.
    """
    from scalevec.sweeps.loading.load import read
    from scalevec.sweeps.yaml_source import read_file, read_text

    if _is_file(source):
        require_sweep_file(source)
        return read(read_file(Path(source)), look_for_files=look_for_files)
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
    from scalevec import sweeps

    is_file = _is_file(source)
    if not is_file and source in sweep_names(runs_dir):
        return SweepFolder.of(runs_dir, source)
    if is_file:
        require_sweep_file(source)
    path = source if is_file else _shipped(source, runs_dir)
    return SweepFolder.of(runs_dir, sweeps.load(path, look_for_files=False).name)


def _is_file(source: str) -> bool:
    """Whether ``source`` is a file. Raises ``InvalidInputError`` for a sweep file that is not there."""
    if Path(source).is_file():
        return True
    if Path(source).suffix in SWEEP_FILES:
        raise InvalidInputError(f"{source}: no such file")
    return False


def _shipped(source: str, runs_dir: Path) -> Path:
    """Return the path of a shipped sweep. Raises ``InvalidInputError``: nothing else has that name either."""
    from scalevec import sweeps

    names = sweeps.shipped_names()
    if source not in names:
        if Path(source).is_dir():
            require_table(source)
            how = "scalevec import makes a table of runs of MLflow or TensorBoard in it"
            raise InvalidInputError(f"{source} is a folder, and no sweep file\n{how}")
        known = ", ".join(sweep_names(runs_dir)) or "none"
        raise InvalidInputError(
            f"{source}: no such file ({', '.join((*SWEEP_FILES, *TABLES))}), and no sweep of that name in "
            f"{runs_dir} (there are: {known}) or among the shipped ones ({', '.join(names)})"
        )
    return sweeps.shipped(source)


def require_sweep_file(source: str) -> None:
    """Raise ``InvalidInputError`` where the file ``source`` is of another kind, in two lines."""
    if kind_of(Path(source))[0]:
        reading = f"scalevec compare {source} reads it (or fit, figures, report); this takes a sweep file"
        raise InvalidInputError(f"{source} is a table of results\n{reading}")
    if other := _other(Path(source)):
        raise InvalidInputError(f"{source} is {other[0]}\n{other[1]}")


def require_table(source: str) -> None:
    """Raise ``InvalidInputError`` where ``source`` is there and has no table, nor a tracker's runs."""
    path = Path(source)
    if path.is_dir():
        local = ("*run-*/files", "wandb/*run-*/files", "files/wandb-*", "wandb-*.json")
        if any(any(path.glob(pattern)) for pattern in local):
            raise InvalidInputError(f"{source} is a folder of W&B\n{_WANDB}")
    elif not kind_of(path)[0] and head_of(path)[0]:
        what, remedy = _other(path) or ("a sweep file", "scalevec results reads its trials, by its name")
        raise InvalidInputError(f"{source} is {what}\n{remedy}")


def _other(path: Path) -> tuple[str, str] | None:
    """What ``path`` is and what to do; None for what may be a sweep file."""
    head, packed = head_of(path)
    if (text := text_of(head)) is None:
        return "no text", _TABLE
    if path.suffix.lower() == ".py":
        return "a Python script", _SCRIPT
    if re.match(r"\s*(\[|\{\s*[\"}])", text) and not re.search(r"\"(ladder|arms)\"\s*:", text):
        return "a JSON file", _LINES
    if packed:
        return "packed, and no table", "unpack it"
    keys = dict.fromkeys(re.findall(r"^[\"']?([\w.-]+)[\"']?\s*:(?:\s|$)", text, re.MULTILINE))
    if not keys:
        is_sweep = path.suffix.lower() in (".yaml", ".yml") or text.lstrip().startswith("{")
        return None if is_sweep or not text.strip() else ("text, neither a sweep file nor a table", _TABLE)
    if _OURS & keys.keys():
        return None
    return f"a YAML file with the keys {', '.join(keys)[:80]}, and no sweep file", _SWEEP
