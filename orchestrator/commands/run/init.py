"""``scalevec init``: a commented sweep file, as large as this machine runs in the time that there is."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from scalevec.orchestrator.cli.options import Output
from scalevec.orchestrator.cli.output import Result, command
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.progress import counted, duration, note
from scalevec.results.files import write_once

if TYPE_CHECKING:
    from scalevec.orchestrator.commands.run.sizing import SizedSweep, Text

OWN = "own-trainer"
_SCRIPT = "train.py"
LITTLE = 0.25
"""Of the time that there is: a sweep that takes less could be larger."""


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
    minutes: Annotated[
        float, typer.Option(metavar="M", min=0.1, max=1e6, help="How long it may take on this machine.")
    ] = 20.0,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write a profile of this SLURM cluster instead, from sinfo."),
    ] = None,
    output: Output = None,
) -> Result:
    """Write a commented sweep file, sized for this machine.

    Times are estimates at an assumed rate. A file that exists is never overwritten; without -o it is
    my-sweep.yaml. With --profile it is profiles.yaml in your own folder, where
    every sweep finds it.
    """
    if profile is not None:
        if data is not None:
            raise InvalidInputError("--profile writes a profile, --data a sweep file: give one of them")
        return _init_profile(profile, output)
    from scalevec.orchestrator.commands.run.sizing import Text, sized, text_in

    path = output or Path("my-sweep.yaml")
    if data is not None and template == OWN:
        raise InvalidInputError("--data is for our own loop; a trainer of your own reads its own text")
    text = Text(tokens=math.inf) if template == OWN else Text()
    if data is not None:
        text = text_in(data, path.parent)
    name = re.sub(r"[^A-Za-z0-9]+", "-", path.stem).strip("-")[:80] or "my-sweep"
    sweep = sized(template, name, path.parent, minutes, text)
    _write(path, sweep, with_script=template == OWN)
    _warn(sweep, minutes, text)
    record = _record(path, sweep, minutes)
    return Result(record, _summary(record))


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


def _write(path: Path, sweep: "SizedSweep", *, with_script: bool) -> None:
    """Write the sweep file, unless it is there; beside it the script that it names, or for the one there."""
    from scalevec import sweeps

    if os.path.lexists(path):
        raise InvalidInputError(f"{path} exists and is not overwritten; give another file with -o")
    write_once(path, sweep.content.encode())
    note(f"wrote {path}")
    script = path.with_name(_SCRIPT)
    if with_script and os.path.lexists(script):
        note(
            f"{script} is there and stays as it is: before you run {path}, give its command the options of "
            "that script, and n_params, ladder and arms the fields that these set"
        )
    elif with_script:
        write_once(script, sweeps.shipped("examples/plain").with_name("plain_train.py").read_bytes())
        note(f"wrote {script}")


def _warn(sweep: "SizedSweep", minutes: float, text: "Text") -> None:
    if sweep.seconds > 60 * minutes:
        note(f"warning: the smallest design of the template takes longer than {duration(60 * minutes)}")
    if sweep.seconds < 60 * minutes * LITTLE:
        note("the time that is left would take more seeds or larger rungs than init writes, or longer text")
    if sweep.longest > text.tokens:
        note(f"warning: the text has about {text.tokens:,.0f} tokens; some trials see it more than once")


def _record(path: Path, sweep: "SizedSweep", minutes: float) -> dict[str, Any]:
    return {
        "path": str(path),
        "trials": len(sweep.trials),
        "seconds": sweep.seconds,
        "seconds_given": 60 * minutes,
        "at_a_time": sweep.at_a_time,
        "rate": sweep.trials[0]["rate"],
        "next": [command(verb, str(path)) for verb in ("plan", "run")],
    }


def _summary(record: Mapping[str, Any]) -> str:
    return (
        f"{counted(record['trials'], 'trial')}, about {duration(record['seconds'])} of "
        f"{duration(record['seconds_given'])} with "
        f"{record['at_a_time']} at a time (times {record['rate']})\n"
        f"next: {', then '.join(record['next'])}"
    )
