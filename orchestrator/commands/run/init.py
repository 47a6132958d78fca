"""``scalevec init``: a commented sweep file from a template, or a profile of a cluster."""

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from scalevec import sweeps
from scalevec.orchestrator.cli.options import Output
from scalevec.orchestrator.cli.output import Result, command
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.progress import note
from scalevec.results.files import write_once

OWN = "own-trainer"
_SCRIPT = "train.py"
_COMPRESSED = (".gz", ".zst")


def init(
    template: Annotated[
        Literal["quickstart", "ladder", "optimizer", "own-trainer"],
        typer.Option("--from", help="Template to start from."),
    ] = "quickstart",
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", exists=True, file_okay=False, help="Train on the text files in this folder."
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write a profile of this SLURM cluster instead, from sinfo."),
    ] = None,
    output: Output = None,
) -> Result:
    """Write a commented sweep file; scalevec plan says what it takes.

    A file that exists is never overwritten; without -o it is my-sweep.yaml. With --profile it is
    profiles.yaml in your own folder, where every sweep finds it.
    """
    if profile is not None:
        if data is not None:
            raise InvalidInputError("--profile writes a profile, --data a sweep file: give one of them")
        return _init_profile(profile, output)
    path = output or Path("my-sweep.yaml")
    if data is not None and template == OWN:
        raise InvalidInputError("--data is for our own loop; a trainer of your own reads its own text")
    name = re.sub(r"[^A-Za-z0-9]+", "-", path.stem).strip("-")[:80] or "my-sweep"
    lines = {"name": name} | ({} if data is None else {"corpus": _corpus_of(data, path.parent)})
    _write(path, edited(_template(template), lines), with_script=template == OWN)
    following = [command(verb, str(path)) for verb in ("plan", "run")]
    return Result({"path": str(path), "next": following}, f"next: {', then '.join(following)}")


def _init_profile(name: str, output: Path | None) -> Result:
    """Write what SLURM says of itself as the profile ``name``."""
    from scalevec.orchestrator.executors.profiles import FILE_NAME, users_own
    from scalevec.orchestrator.executors.slurm.partitions import profile_text

    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", name):
        raise InvalidInputError(f"--profile is {name!r}; allowed: letters, digits and signs of _ . -")
    path = output or users_own()
    text = profile_text(name)
    if os.path.lexists(path):
        raise InvalidInputError(
            f"{path} exists and is not overwritten; give another file with -o, or add these lines:\n\n{text}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_once(path, text.encode())
    note(f"wrote {path}: look over each line, and add what your site asks for")
    if path != users_own():
        note(f"profiles are found in {users_own()} and in {FILE_NAME} beside a sweep file: add it there")
    following = command("plan", "SWEEP.yaml", profile=name)
    return Result({"path": str(path), "profile": name, "next": [following]}, f"{text}\nNext: {following}")


def _write(path: Path, content: str, *, with_script: bool) -> None:
    """Write the sweep file, unless it is there; beside it the script that it names, or for the one there."""
    if os.path.lexists(path):
        raise InvalidInputError(f"{path} exists and is not overwritten; give another file with -o")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_once(path, content.encode())
    note(f"wrote {path}")
    script = path.with_name(_SCRIPT)
    if with_script and os.path.lexists(script):
        note(
            f"{script} is there and stays as it is: before you run {path}, give its command the options of "
            "that script, and n_params, ladder and arms the fields that these set"
        )
    elif with_script:
        write_once(script, sweeps.shipped(f"templates/{OWN}").with_name(_SCRIPT).read_bytes())
        note(f"wrote {script}")


def _template(name: str) -> str:
    """Return the text of a template, which tells an editor where its schema is."""
    folder = Path(sweeps.__file__).resolve().parent
    content = (folder / "templates" / f"{name}.yaml").read_text(encoding="utf-8")
    return content.replace("$schema=../", f"$schema={folder}/", 1)


def _corpus_of(folder: Path, beside: Path) -> str:
    """Return the section of a sweep file in ``beside`` for the largest of the kinds of files in ``folder``.

    Raises ``InvalidInputError`` where there is no text.
    """
    sizes: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            last = 2 if path.suffix in _COMPRESSED else 1
            sizes["".join(path.suffixes[-last:])] += path.stat().st_size
    if not any(sizes.values()):
        raise InvalidInputError(f"--data is {folder}, which has no text; allowed: a folder of text files")
    [(ending, _)] = sizes.most_common(1)
    source = next((name for name in ("jsonl", "parquet") if ending.startswith(f".{name}")), "text")
    files = f"{glob.escape(os.path.relpath(folder.resolve(), beside.resolve()))}/**/*{ending}"
    return (
        f"{{source: {source}, files: [{json.dumps(files)}], tokenizer: {{bpe: 1024}}, sequence_length: 128}}"
    )


def edited(content: str, lines: Mapping[str, str]) -> str:
    """Return ``content`` with other values at the keys of ``lines``; comments stay in their column."""
    for key, value in lines.items():

        def line(match: re.Match[str], start: str = f"{key}: {value}") -> str:
            return f"{start:<{match.start(1) - match.start()}}{match[1]}" if match[1] else start

        content = re.sub(rf"(?m)^{key}: .*?( #.*)?$", line, content, count=1)
    return content
