"""The pages of the documentation that follow from the code, as hooks of mkdocs: ``make docs``.

Run as a script it writes ``sweeps/schema.json``, which the first line of every shipped sweep names.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import typer.main

import scalevec
from scalevec import sweeps
from scalevec.orchestrator.cli.app import application

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

CHECKOUT = Path(__file__).resolve().parents[1]
SCHEMA = CHECKOUT / "sweeps" / "schema.json"
OF_CHECKOUT = "checkout"
"""The folder of the site for what pages name outside of docs: tables, theory, the licence."""
PAGES = {"index.md": "README.md", "changes.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
SECTIONS = {
    "The sweep": "",
    "corpus": "CorpusSection",
    "corpus: tokenizer": "TokenizerSection",
    "trial, arms": "TrialFields",
    "arms: scale_vectors": "StrategyFields",
    "optimizers": "OptimizerFields",
    "schedules": "ScheduleFields",
    "ladder": "Rung",
    "ladder: generated": "Generator",
    "ladder: experts": "ExpertsFields",
    "tune": "Tune",
    "compare": "Compare",
    "compare: predict": "PredictionEntry",
    "measure": "MeasureSection",
    "resources": "Resources",
    "trainer": "TrainerSection",
    "plugins": "PluginEntry",
    "simulate": "Simulate",
    "simulate: law": "PlantedLaw",
    "simulate: arms": "ArmLaw",
    "simulate: learning_rate": "RateBowl",
    "simulate: faults": "Faults",
}
"""The sections of the sweep file, with their names in the schema."""
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):<code>~?(?:[\w.]+\.)?(\w+)</code>")
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
Schema = Mapping[str, Any]


def main() -> None:
    """Write the JSON Schema of the sweep file beside the shipped sweeps."""
    SCHEMA.write_text(schema_text(sweeps.json_schema()), encoding="utf-8")


def schema_text(schema: Schema) -> str:
    """``schema`` with one line for each section, so that a change can be read."""
    parts = [f'"{name}": {json.dumps(part)}' for name, part in schema.items() if name != "$defs"]
    definitions = ",\n".join(f'"{name}": {json.dumps(part)}' for name, part in schema["$defs"].items())
    return "{\n" + ",\n".join([*parts, f'"$defs": {{\n{definitions}\n}}']) + "\n}\n"


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages that are generated, those at the top of the checkout, and what pages link to."""
    from mkdocs.structure.files import File

    contents = {page: (CHECKOUT / path).read_text(encoding="utf-8") for page, path in PAGES.items()}
    contents |= {
        "reference/sweep-file.md": "\n".join(sweep_file_page(sweeps.json_schema())),
        "reference/commands.md": "\n".join(commands_page(typer.main.get_command(application()))),
        "reference/python.md": "\n".join(python_page()),
    }
    for name, content in contents.items():
        files.append(File.generated(config, name, content=content))
    docs = CHECKOUT / "docs"
    linked = {
        link
        for folder, text in (
            *((CHECKOUT, contents[page]) for page in PAGES),
            *((docs, path.read_text(encoding="utf-8")) for path in sorted(docs.glob("*.md"))),
        )
        for link in _outside(folder, text)
    }
    for link in sorted(linked):
        files.append(File.generated(config, f"{OF_CHECKOUT}/{link}", abs_src_path=str(CHECKOUT / link)))
    return files


def _outside(folder: Path, text: str) -> Iterator[str]:
    """The files of the checkout, outside of docs and not pages of the site, that ``text`` links to."""
    for link in _LINK.findall(text):
        path = (folder / link).resolve().relative_to(CHECKOUT).as_posix()
        if not path.startswith("docs/") and path not in PAGES.values() and (CHECKOUT / path).is_file():
            yield path


def on_page_markdown(markdown: str, *, page: "Page", **_: object) -> str:
    """Let links lead to where the site has what they name."""
    source = PurePosixPath(page.file.src_uri)
    folder = CHECKOUT if source.name in PAGES else CHECKOUT / "docs"
    of_site = {path: name for name, path in PAGES.items()}

    def moved(match: re.Match[str]) -> str:
        path = (folder / match[1]).resolve().relative_to(CHECKOUT).as_posix()
        elsewhere = path.removeprefix("docs/") if path.startswith("docs/") else f"{OF_CHECKOUT}/{path}"
        return f"]({of_site.get(path, elsewhere)}"

    return _LINK.sub(moved, markdown) if source.parent == PurePosixPath() else markdown


def on_page_content(html: str, **_: object) -> str:
    """Show a role of a docstring as the name that it is about."""
    return _ROLE.sub(r"<code>\1</code>", html)


def sweep_file_page(schema: Schema) -> Iterator[str]:
    """Every field of the sweep file: a sentence, and what it takes, section by section."""
    yield "# The sweep file, field by field\n"
    yield "`grid` and `zip` take lists of the fields of `trial`, `tune` of the numeric ones.\n"
    for title, name in SECTIONS.items():
        section = schema["$defs"][name] if name else schema
        yield f"## {title}\n"
        yield "| field | what it is | takes |"
        yield "| --- | --- | --- |"
        for field, entry in section["properties"].items():
            yield f"| `{field}` | {_in_cell(entry['description'])} | `{_in_cell(_taken(entry))}` |"
        yield ""


def _taken(entry: Schema) -> str:
    """The names or the kinds of value that a field takes, and its default."""
    forms = [form for form in entry.get("anyOf", [entry]) if form.get("type") != "null"]
    kinds = [name for form in forms for name in form.get("enum", [form.get("type", "mapping")])]
    default = entry.get("default")
    is_told = isinstance(default, str | int | float)
    return " or ".join(map(str, kinds)) + (f" (default {json.dumps(default)})" if is_told else "")


def commands_page(group: Any) -> Iterator[str]:
    """Every command of a group of typer, with its options."""
    yield "# Commands\n"
    for name, command in _commands(group):
        context = typer.Context(command)
        shown = [record for each in command.params if (record := each.get_help_record(context))]
        yield f"## `scalevec {name}`\n"
        yield f"{command.help.strip()}\n"
        if shown:
            yield "| option | meaning |"
            yield "| --- | --- |"
            yield from (f"| `{_in_cell(option)}` | {_in_cell(meaning)} |" for option, meaning in shown)
            yield ""


def _commands(group: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


def python_page() -> Iterator[str]:
    """What ``import scalevec`` has, from its docstrings."""
    yield "# Python\n"
    yield "`import scalevec` loads nothing else before a name is first used.\n"
    yield from (f"::: {path}\n" for path in ("scalevec.open", *_public()))


def _public() -> Iterator[str]:
    for name in scalevec.__all__:
        where = getattr(scalevec, name)
        yield f"{where.__module__}.{where.__qualname__}"


def _in_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
