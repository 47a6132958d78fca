"""``scalevec corpus``: prepare a corpus, name it by its fingerprint, and look into it."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from scalevec.model.data import SPLITS
from scalevec.model.data.corpus import Corpus, open_corpus, verify
from scalevec.model.fields import to_dict
from scalevec.orchestrator.cli.options import RUNS, Runs, Sweep, sweeps
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.errors import Exit, InvalidInputError
from scalevec.orchestrator.progress import counted, note
from scalevec.orchestrator.sources.runs import only_match
from scalevec.orchestrator.sources.sources import load_sweep
from scalevec.results.sweep_folder import sweep_names

_SHOWN_CHARACTERS = 300
_SHOWN_IDS = 24

Record = dict[str, Any]
Processes = Annotated[
    int, typer.Option("--jobs", "-j", metavar="N", min=0, help="Processes that prepare it; 0: one per core.")
]


def prepare(source: Sweep, runs_dir: Runs = RUNS, jobs: Processes = 0) -> Result | Exit:
    """Tokenize a corpus under the runs directory, unless it is there."""
    from scalevec.model.data.prepare import prepare as make
    from scalevec.orchestrator.sweep.corpus_of_sweep import configuration

    config = configuration(load_sweep(source, runs_dir))
    try:
        corpus = make(config, _corpora(runs_dir), note, jobs or None)
    except KeyboardInterrupt:
        note("stopped; nothing was kept. Give the same command again to start over")
        return Exit.INTERRUPTED
    return _result(description(corpus))


def inspect(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A sweep (file or name), or the first digits of a fingerprint.",
            autocompletion=sweeps,
        ),
    ],
    runs_dir: Runs = RUNS,
    split: Annotated[
        Literal["train", "validation", "test"], typer.Option(help="Split whose documents are shown.")
    ] = "train",
    documents: Annotated[int, typer.Option(min=0, help="How many documents are shown.")] = 3,
) -> Result:
    """Show what a prepared corpus holds, and its first documents; its shards are checked."""
    corpora = _corpora(runs_dir)
    if re.fullmatch("[0-9a-f]+", source) and source not in sweep_names(runs_dir):
        names = sorted(path.name for path in corpora.glob("*"))
        name = only_match(source, names, f"corpora in {corpora}", "fingerprint")
    else:
        name = _fingerprint(source, runs_dir, corpora)
        if not (corpora / name).is_dir():
            raise InvalidInputError(f"corpus {name} is not under {corpora}; scalevec corpus prepare makes it")
    corpus = open_corpus(corpora, name)
    verify(corpus, note, again=True)
    return _result(description(corpus) | {"documents": _sampled(corpus, split, documents)})


def fingerprint(source: Sweep, runs_dir: Runs = RUNS) -> Result:
    """Print the name of a corpus: a hash of its text and its tokenizer.

    All its text is read, nothing is written.
    """
    name = _fingerprint(source, runs_dir, None)
    return Result({"fingerprint": name}, name)


def _fingerprint(source: str, runs_dir: Path, corpora: Path | None) -> str:
    from scalevec.model.data.prepare import fingerprint as name_of
    from scalevec.orchestrator.sweep.corpus_of_sweep import configuration

    return name_of(configuration(load_sweep(source, runs_dir)), note, corpora)


def _corpora(runs_dir: Path) -> Path:
    return runs_dir / "corpora"


def description(corpus: Corpus) -> Record:
    """Return everything known about a prepared corpus, as JSON values."""
    facts = to_dict(corpus.facts)
    splits = {name: facts.pop(name) for name in SPLITS}
    for split in splits.values():
        split["bytes_per_token"] = split["bytes"] / split["tokens"] if split["bytes"] else None
    size = sum(path.stat().st_size for path in corpus.directory.iterdir())
    return {"directory": str(corpus.directory), "disk_bytes": size, **facts, "splits": splits}


def _sampled(corpus: Corpus, split: str, count: int) -> list[Record]:
    from scalevec.model.data.tokenize import first_documents

    return [
        {
            "split": split,
            "tokens": len(document.ids),
            "is_whole": document.is_whole,
            "ids": list(document.ids[:_SHOWN_IDS]),
            "text": None if document.text is None else document.text[:_SHOWN_CHARACTERS],
        }
        for document in first_documents(corpus, split, count)
    ]


def _result(record: Record) -> Result:
    return Result(record, "\n".join(_lines(record)))


def _lines(record: Record) -> list[str]:
    config = record["config"]
    lines = [
        f"corpus {record['fingerprint']}",
        f"  {record['directory']}, {record['disk_bytes'] / 1e6:,.1f} MB",
        f"  source {config['source']}, tokenizer {config['tokenizer']} {config['tokenizer_name']}".rstrip(),
        f"  vocabulary {config['vocabulary_size']:,}, the model's as well (it is not rounded up); "
        f"ids stored as {record['dtype']}",
    ]
    lines += [_split_line(name, facts) for name, facts in record["splits"].items()]
    if record["empty"]:
        lines.append(f"  {record['empty']:,} empty documents were left out")
    lines += [f"  {name} was left out: not UTF-8 text" for name in record["skipped"]]
    for document in record.get("documents", ()):
        whole = "" if document["is_whole"] else " or more"
        content = " ".join(map(str, document["ids"])) if document["text"] is None else repr(document["text"])
        lines.append(f"{document['split']}, {document['tokens']:,} tokens{whole}: {content}")
    return lines


def _split_line(name: str, facts: Record) -> str:
    line = f"  {name}: {facts['tokens']:,} tokens"
    if facts["documents"]:
        line += f", {counted(facts['documents'], 'document')}"
    if facts["bytes_per_token"] is not None:
        line += f", {facts['bytes_per_token']:.3f} bytes/token"
    return line
