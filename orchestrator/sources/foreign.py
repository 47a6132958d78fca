"""Files from elsewhere: results of other trackers as tidy rows, and what is no table and no sweep file."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from scalevec.analysis.data.read import LOG_LINE, head_of, kind_of, text_of
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.progress import note

if TYPE_CHECKING:
    from scalevec.orchestrator.sources.imports.tidy_rows import ImportedTable


def is_table(source: str) -> bool:
    """Whether ``source`` is standard input or a pipe, or a file of a kind that holds a table."""
    from scalevec.orchestrator.sources.imports.given_tables import STANDARD_INPUT

    return source == STANDARD_INPUT or Path(source).is_fifo() or kind_of(Path(source))[0] != ""


def say_columns(table: "ImportedTable") -> None:
    """Say on standard error what was taken for what, and what a person should know."""
    from scalevec.orchestrator.sources.imports.tidy_rows import mapping_lines

    for line in [*mapping_lines(table.columns, table.rows), *(f"note: {text}" for text in table.notes)]:
        note(line)


_SCRIPT = "for a sweep over a script of your own: scalevec init --from own-trainer makes a sweep file for it"
_TABLE = "write its results as a table that can be read: .csv, .tsv, .jsonl or .parquet (pandas: to_parquet)"
_LINES = "a sweep file has ladder and arms; a table one object on each line: jq -c '.[]' FILE > FILE.jsonl"
_LOG = "its log can be read: jq -c '.log_history[]' FILE > FILE.jsonl; N and tokens by --map"
_WANDB = "export the table of runs from W&B as CSV: scalevec import reads that"
_SWEEP = "a sweep file has ladder and arms; scalevec init writes one, for a script with --from own-trainer"
_OURS = {"ladder", "arms", "corpus", "tune", "simulate"}
_ZIP = "a ZIP archive"
_MARKS = {
    r"PK\x03\x04.*(xl/|\[Content_Types\])|\xd0\xcf\x11\xe0": "an Excel file",
    r"\x80[\x02-\x05]|PK\x03\x04.*data\.pkl": "a pickle",
    r"\x89PNG|\xff\xd8\xff|GIF8": "an image",
    r"%PDF": "a PDF file",
    r"PK\x03\x04": _ZIP,
}
_SUFFIXES = {
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods"), ("an Excel file", _TABLE)),
    **dict.fromkeys((".pkl", ".pickle", ".pt", ".pth"), ("a pickle", _TABLE)),
    ".ipynb": ("a notebook", _TABLE),
    ".py": ("a Python script", _SCRIPT),
}


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
    raw, text = head.decode("latin-1"), text_of(head)
    marked = next((what for mark, what in _MARKS.items() if re.match(mark, raw, re.DOTALL)), "")
    if marked not in ("", _ZIP):
        return marked, _TABLE
    if path.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[path.suffix.lower()]
    if marked:
        return marked, "unpack it"
    if text is None:
        return "no text", _TABLE
    if '"nbformat"' in text:
        return _SUFFIXES[".ipynb"]
    if sum(map(bool, map(LOG_LINE.match, text.splitlines()))) > 1:
        return "a training log", _TABLE
    if re.search(r"\A(\s*#.*\n|\s)*\[\[?[\w.\"'-]+\]\]?\s*(#.*)?$", text, re.MULTILINE):
        return "a TOML file", _SWEEP
    if text.startswith("#!"):
        return "a script", _SCRIPT
    if re.match(r"\s*(\[|\{\s*[\"}])", text) and not re.search(r"\"(ladder|arms)\"\s*:", text):
        if '"log_history"' in text:
            return "the state of a Hugging Face Trainer", _LOG
        return ("a JSON file of W&B", _WANDB) if '"_runtime"' in text else ("a JSON file", _LINES)
    if packed:
        return "packed, and no table", "unpack it"
    return _other_yaml(path, text)


def _other_yaml(path: Path, text: str) -> tuple[str, str] | None:
    keys = dict.fromkeys(re.findall(r"^[\"']?([\w.-]+)[\"']?\s*:(?:\s|$)", text, re.MULTILINE))
    if not keys:
        is_sweep = path.suffix.lower() in (".yaml", ".yml") or text.lstrip().startswith("{")
        return None if is_sweep or not text.strip() else ("text, neither a sweep file nor a table", _TABLE)
    if len(_OURS & keys.keys()) > ("tune" in keys) or "\n\t" in text:  # Ray has a tune of its own
        return None
    return f"a YAML file with the keys {', '.join(keys)[:80]}, and no sweep file", _SWEEP
