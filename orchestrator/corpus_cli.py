"""The commands of ``scalevec corpus``."""

from typing import Annotated

import typer

from orchestrator.options import RUNS, AsJson, Runs, finish

app = typer.Typer(help="Corpora: prepare, inspect and fingerprint one.", no_args_is_help=True)

Sweep = Annotated[str | None, typer.Argument(metavar="[SWEEP]", help="A sweep file.")]
Mapping = Annotated[
    str | None,
    typer.Option(
        "--corpus", help="A corpus alone, as in '{source: text, files: [a.txt], tokenizer: bytes}'."
    ),
]


@app.command()
def prepare(sweep: Sweep = None, mapping: Mapping = None, runs: Runs = RUNS, as_json: AsJson = False) -> None:
    """Tokenize a corpus under the folder of runs, unless it is there."""
    from orchestrator.commands import corpora

    finish(corpora.prepare(sweep, mapping, runs, as_json=as_json))


@app.command()
def inspect(
    source: Annotated[
        str | None, typer.Argument(metavar="[SOURCE]", help="A sweep file, or digits of a fingerprint.")
    ] = None,
    mapping: Mapping = None,
    runs: Runs = RUNS,
    split: Annotated[
        str, typer.Option(help="Whose documents are shown: train, validation or test.")
    ] = "train",
    documents: Annotated[int, typer.Option(min=0, help="How many documents are shown.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Show what a prepared corpus holds, and its first documents."""
    from orchestrator.commands import corpora

    finish(corpora.inspect(source, mapping, runs, split=split, documents=documents, as_json=as_json))


@app.command()
def fingerprint(sweep: Sweep = None, mapping: Mapping = None, as_json: AsJson = False) -> None:
    """Print what a corpus is called: a hash of its text and its tokenizer."""
    from orchestrator.commands import corpora

    finish(corpora.fingerprint(sweep, mapping, as_json=as_json))
