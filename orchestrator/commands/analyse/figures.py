"""``scalevec figures``: the figures of a paper as files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from scalevec import analysis
from scalevec.analysis.options import OptionChanges
from scalevec.analysis.registry import FIGURES
from scalevec.orchestrator.cli.options import RUNS, Maps, Reference, Runs, SourceName
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.analyse.question import question
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.sources import choices_of

Renames = Annotated[
    list[str] | None,
    typer.Option(metavar="ARM=NAME", help="What an arm is called in figures; may be given again."),
]
Colours = Annotated[
    list[str] | None,
    typer.Option(
        "--colour", "--color", metavar="ARM=COLOUR", help="Its colour, as #D55E00; may be given again."
    ),
]
Order = Annotated[str | None, typer.Option(metavar="ARMS", help="Arms that come first, with commas.")]
Style = Annotated[Path | None, typer.Option(metavar="FILE", help="A style sheet of matplotlib, over ours.")]


def figures(
    source: SourceName,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to write to.")],
    runs_dir: Runs = RUNS,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMATS", help="Any of pdf, svg, png, with commas.")
    ] = "pdf,svg,png",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE",
            help=f"One of {', '.join(FIGURES)}; may be repeated.",
            autocompletion=lambda: list(FIGURES),
        ),
    ] = None,
    width: Annotated[
        Literal["page", "text", "column"],
        typer.Option(help="page: 3.25 inches for one panel, 6.75 for several; text: 5.5; column: 3.25."),
    ] = "page",
    rename: Renames = None,
    colour: Colours = None,
    order: Order = None,
    style: Style = None,
    reference: Reference = None,
    given: OptionChanges = {},  # noqa: B006 (never changed)
    maps: Maps = None,
) -> Result:
    """Write every paper figure that SOURCE has data for."""
    from scalevec.orchestrator.sources.measured import run_statistics, training_curves

    data, arm, options = question(source, runs_dir, reference, given, maps)
    written = analysis.write_figures(
        data.rows,
        output,
        formats=_listed(form),
        only=only or [],
        width=width,
        rename=_by_arm("--rename", rename),
        palette=_by_arm("--colour", colour),
        order=_listed(order or ""),
        style=style,
        choices=choices_of(data),
        curves=training_curves(data, runs_dir),
        statistics=run_statistics(data, runs_dir) if data.folder else None,
        reference=arm,
        options=options,
    )
    for name, reason in written.left_out.items():
        note(f"no figure {name}: {reason}")
    paths = [str(path) for path in written.paths]
    shown = {"paths": paths, "captions": written.captions, "left_out": dict(written.left_out)}
    return Result(shown, "\n".join(paths))


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _by_arm(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """What stands behind each ARM= of an option."""
    for text in given or ():
        if "=" not in text:
            raise InvalidInputError(f"{option} is {text!r}; write ARM=..., as in unified=...")
    return dict(text.split("=", 1) for text in given or ())
