"""The application: which commands there are, in groups, and how a function becomes a command.

A command is one module in ``orchestrator/commands`` with a function of its name. Its parameters are the
arguments and options, with help in their annotations; it returns a :class:`Result`, or an exit code where it
has printed what there is to print.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer
from typer.core import TyperGroup

from scalevec.analysis.options import AnalysisOptions
from scalevec.orchestrator.cli import options
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.errors import Exit, InvalidInputError, MissingRequirementError
from scalevec.results.extras import install_command, missing_package

PANELS = {
    "Run": ("demo", "init", "plan", "run", "submit", "cancel", "retry", "next"),
    "Look": ("status", "dashboard", "results", "explain", "logs", "doctor"),
    "Analyse": ("fit", "predict", "compare", "table", "figures", "theory", "report"),
    "Models": ("export", "evaluate"),
    "Data": ("corpus", "store", "import", "schema"),
}
"""The folders of ``orchestrator/commands`` (in lower case) and the modules in them."""
GROUPS = {
    "corpus": ("Prepare, inspect and fingerprint a corpus.", ("prepare", "inspect", "fingerprint")),
    "store": ("Rebuild the index over the run directories.", ("rebuild",)),
}
"""Modules with several commands: a line of help, and the functions."""
_TRAINING = ("demo", "run", "submit", "export", "evaluate", "prepare")
"""Functions of commands that need the extra ``train``, and say so before they begin."""
_LONGEST_CHOICES = 30
"""Characters of ``a|b|c`` beside an option; more of them are listed in its help."""
_METAVARS = {
    "law": "LAW",
    "y": "COLUMN",
    "where": "EXPRESSION",
    "hold_out": "ROWS",
    "cluster": "COLUMN",
    "settings": "COLUMN",
}
_NOT_ON_THE_COMMAND_LINE = ("margin", "looks")
"""They are fixed before the runs, in the sweep file."""
_NOT_OF = {
    "compare": ("interval",),
    "report": ("interval",),
    "figures": ("interval",),
    "fit": ("repeated_seeds",),
    "predict": ("repeated_seeds",),
}
"""Options of an analysis that a command could only refuse or drop: a comparison chooses its intervals
itself, and a fit has no pairs."""
_SEVERAL_LAWS = "fit"
"""The command that compares several laws."""


class _Panels(TyperGroup):
    """Lists the commands by panel, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 (typer's signature)
        """Write one section per panel."""
        for panel, names in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl(
                    [(name, _first_sentence(self.commands[name].help or "")) for name in names]
                )


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def application(first_word: str = "") -> typer.Typer:
    """Return the application with every command; where ``first_word`` names one, with no other.

    The modules of commands are light to import, but all of them together take 0.2 s.
    """
    everything = [(panel.lower(), name) for panel, names in PANELS.items() for name in names]
    commands = [(panel, name) for panel, name in everything if name == first_word] or everything
    app = typer.Typer(
        name="scalevec",
        cls=_Panels,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_global)
    for panel, name in commands:
        module = import_module(f"scalevec.orchestrator.commands.{panel}.{_identifier(name)}")
        if name not in GROUPS:
            app.command(name)(as_command(getattr(module, _identifier(name))))
            continue
        help_text, members = GROUPS[name]
        group = typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode=None)
        for member in members:
            group.command(member)(as_command(getattr(module, member)))
        app.add_typer(group, name=name)
    return app


def _identifier(name: str) -> str:
    """The name of a command in Python: ``import`` is a word of the language."""
    return f"{name}_" if iskeyword(name) else name.replace("-", "_")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"scalevec {version('scalevec')}")
        raise typer.Exit


def _global(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="SCALEVEC_STORE",
            help="Index of the results, as postgresql://user@host/name.",
        ),
    ] = None,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Scaling-law experiments from one sweep file to a verdict."""
    if debug:
        os.environ["SCALEVEC_DEBUG"] = "1"
    if store:
        os.environ["SCALEVEC_STORE"] = store


def as_command(function: Callable[..., Result | Exit]) -> Callable[..., None]:
    """Return ``function`` as typer takes it; one that returns a :class:`Result` has ``--json`` too.

    A parameter ``given`` of the type ``OptionChanges`` stands for the options of an analysis.
    """
    signature = inspect.signature(function, eval_str=True)
    without = _NOT_OF.get(function.__name__, ())
    of_analysis = {
        option.name: option
        for option in _analysis_parameters(several_laws=function.__name__ == _SEVERAL_LAWS)
        if option.name not in without
    }
    takes_json = "as_json" in signature.parameters

    def command(**values: Any) -> None:
        if function.__name__ in _TRAINING and (package := missing_package("train")):
            need = f"{function.__name__} needs {package}, which is not installed"
            raise MissingRequirementError(f"{need}: {install_command('train')}")
        if "given" in signature.parameters:
            values["given"] = _given({name: values.pop(name) for name in of_analysis})
        _require_other_output(values)
        as_json = values["as_json"] if takes_json else values.pop("as_json", False)
        result = function(**values)
        raise typer.Exit(int(result.write(as_json=as_json) if isinstance(result, Result) else result))

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        plain = [parameter.replace(kind=parameter.KEYWORD_ONLY)]
        parameters += of_analysis.values() if name == "given" else plain
    if not takes_json and Result in (signature.return_annotation, *get_args(signature.return_annotation)):
        parameters.append(_keyword("as_json", options.AsJson, False))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {}
    command.__doc__ = function.__doc__
    return command


def _require_other_output(values: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidInputError` where a command would write over a file that it was given to read."""
    output = values.get("output")
    if not isinstance(output, Path) or not output.is_file():
        return
    for name, value in values.items():
        for given in value if isinstance(value, list | tuple) else [value]:
            with suppress(OSError):  # what is no file
                if name != "output" and isinstance(given, str | Path) and output.samefile(given):
                    raise InvalidInputError(f"--output {output}: that is the file to read; name another one")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an analysis that stand on the command line."""
    given = {name: value for name, value in values.items() if value not in (None, [])}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def _analysis_parameters(*, several_laws: bool) -> Iterator[inspect.Parameter]:
    """Yield an option for each field of :class:`AnalysisOptions`; its default is None.

    A law is named or written, plugins bring further ones, and a command may take ``several_laws``.
    """
    hints = get_type_hints(AnalysisOptions)
    for field in fields(AnalysisOptions):
        if field.name in _NOT_ON_THE_COMMAND_LINE:
            continue
        choices, is_law = field.metadata["choices"], field.name == "law"
        kind: Any = Literal[tuple(choices)] if choices and not is_law else hints[field.name]
        if tuple[str, ...] in (kind, *get_args(kind)) or (is_law and several_laws):
            kind = list[str]
        listed = "|".join(choices)
        text = field.metadata["help"]
        if len(listed) > _LONGEST_CHOICES:
            text = f"{text.removesuffix('.')}: {', '.join(choices)}."
        if field.default is not None:
            text += f"  [default: {field.default}]"
        option = typer.Option(
            *(["--law", "--formula"] if is_law else [f"--{field.name.replace('_', '-')}"]),
            help=text,
            metavar=_METAVARS.get(field.name) or (None if len(listed) <= _LONGEST_CHOICES else "NAME"),
            autocompletion=options.laws if is_law else None,
        )
        yield _keyword(field.name, Annotated[kind | None, option], None)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
