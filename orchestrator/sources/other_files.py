"""What is neither a sweep file nor a table that can be read: what it is, and what to do with it."""

import re
from pathlib import Path

from scalevec.analysis.data.read import head_of, kind_of, text_of
from scalevec.orchestrator.errors import InvalidInputError

_SCRIPT = "for a sweep over a script of your own: scalevec init --from own-trainer makes a sweep file for it"
_TABLE = "write its results as a table that can be read: .csv, .tsv, .jsonl or .parquet (pandas: to_parquet)"
_LINES = "with one object on each line it can be read as a table: jq -c '.[]' FILE > FILE.jsonl for a list"
_WANDB = "export the table of runs from W&B as CSV: scalevec import reads that"
_RAY = "trials go there by --executor ray, with a profile that has the address of the cluster"
_SWEEP = "a sweep file has ladder and arms; scalevec init writes one, for a script with --from own-trainer"
_OURS = {"ladder", "arms", "corpus", "tune", "simulate"}
_MARKS = {
    r"PK\x03\x04.*(xl/|\[Content_Types\])|\xd0\xcf\x11\xe0": "an Excel file",
    r"\x80[\x02-\x05]|PK\x03\x04.*data\.pkl": "a pickle",
    r"\x89PNG|\xff\xd8\xff|GIF8": "an image",
    r"%PDF": "a PDF file",
}
_SUFFIXES = {
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods"), ("an Excel file", _TABLE)),
    **dict.fromkeys((".pkl", ".pickle", ".pt", ".pth"), ("a pickle", _TABLE)),
    ".ipynb": ("a notebook", _TABLE),
    ".py": ("a Python script", _SCRIPT),
}
_PROGRAMS = (
    ("a W&B sweep", {"parameters", "method"}),
    ("a W&B sweep", {"parameters", "program"}),
    ("a Hydra configuration", {"defaults"}),
    ("a Hydra configuration", {"hydra"}),
    ("a configuration of a Ray cluster", {"cluster_name"}),
    ("a search of Ray Tune", {"param_space"}),
    ("an experiment of Determined", {"searcher"}),
    ("a study of Optuna", {"study_name"}),
    ("a profile of Snakemake", {"default-resources"}),
)
"""What a YAML file is, by keys at its top."""


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
    if marked := next((what for mark, what in _MARKS.items() if re.match(mark, raw, re.DOTALL)), ""):
        return marked, _TABLE
    if path.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[path.suffix.lower()]
    if text is None:
        return "no text", _TABLE
    if '"nbformat"' in text:
        return _SUFFIXES[".ipynb"]
    if re.match(r"\s*(\[|\{\s*[\"}])", text) and not re.search(r"\"(ladder|arms)\"\s*:", text):
        return ("a JSON file of W&B", _WANDB) if '"_runtime"' in text else ("a JSON file", _LINES)
    if packed:
        return "packed, and no table", "unpack it"
    return _other_yaml(path, text)


def _other_yaml(path: Path, text: str) -> tuple[str, str] | None:
    keys = dict.fromkeys(re.findall(r"^[\"']?([\w.-]+)[\"']?\s*:(?:\s|$)", text, re.MULTILINE))
    if not keys:
        is_sweep = path.suffix.lower() in (".yaml", ".yml") or text.lstrip().startswith("{")
        return None if is_sweep or not text.strip() else ("text, neither a sweep file nor a table", _TABLE)
    if _OURS & keys.keys():
        return None
    if known := next((what for what, needed in _PROGRAMS if needed <= keys.keys()), ""):
        return known, _RAY if "cluster_name" in keys else _SCRIPT
    return f"a YAML file with the keys {', '.join(keys)[:80]}, and no sweep file", _SWEEP
