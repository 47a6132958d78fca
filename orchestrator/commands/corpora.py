"""``scalevec corpus``: prepare a corpus, name it by its fingerprint, and look into it."""

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Exit, Refused

if TYPE_CHECKING:
    from model.training.corpora import Corpus
    from sweeps.schema import Sweep

SHORTEST_PREFIX = 4
OPTION = "--corpus"
_REST = "\nname: corpus\nladder: [tiny-25k]\narms: {baseline: {scale_vectors: baseline}}\n"
"""What a sweep file needs beside its corpus."""
_SHOWN_CHARACTERS = 300
_SHOWN_IDS = 24

Record = dict[str, Any]


def prepare(sweep: str | None, mapping: str | None, runs_dir: Path, *, as_json: bool) -> Exit:
    """Materialise a corpus under RUNS_DIR; what it holds goes to standard output."""
    from model.training.corpora import prepare as make
    from orchestrator.corpora import configuration

    config = configuration(_sweep(sweep, mapping))
    try:
        corpus = make(config, _corpora(runs_dir), _say)
    except KeyboardInterrupt:
        _say("stopped; nothing half-made is left. To go on, give the same command again")
        return Exit.INTERRUPTED
    _print(description(corpus), as_json=as_json)
    return Exit.DONE


def fingerprint(sweep: str | None, mapping: str | None, *, as_json: bool) -> Exit:
    """What a corpus is called; all its text is read, nothing is written."""
    name = _fingerprint(_sweep(sweep, mapping), None)
    print(json.dumps({"fingerprint": name}) if as_json else name)
    return Exit.DONE


def inspect(
    source: str | None, mapping: str | None, runs_dir: Path, *, split: str, documents: int, as_json: bool
) -> Exit:
    """What a prepared corpus holds, and the first documents of a split."""
    from model.training.corpora import open_corpus
    from model.training.corpus_documents import SPLITS

    if split not in SPLITS:
        raise Refused(f"--split is {split!r}; allowed: {', '.join(SPLITS)}")
    corpora = _corpora(runs_dir)
    if source is not None and mapping is None and re.fullmatch("[0-9a-f]+", source):
        name = _whole_name(source, corpora)
    else:
        name = _fingerprint(_sweep(source, mapping), corpora)
        if not (corpora / name).is_dir():
            raise Refused(f"corpus {name} is not under {corpora}; scalevec corpus prepare makes it")
    corpus = open_corpus(corpora, name)
    _print(description(corpus) | {"documents": _sampled(corpus, split, documents)}, as_json=as_json)
    return Exit.DONE


def _sweep(path: str | None, mapping: str | None) -> "Sweep":
    """The sweep whose corpus is meant; a corpus alone is read as that of a sweep in this folder."""
    import sweeps

    if (path is None) == (mapping is None):
        raise Refused(
            f"a corpus is needed: a sweep file, or {OPTION} '{{source: ..., ...}}'; give one of them"
        )
    if path is not None:
        return sweeps.load(path)
    return sweeps.loads(f"corpus: {mapping}{_REST}", OPTION, Path())


def _fingerprint(sweep: "Sweep", corpora: Path | None) -> str:
    from model.training.corpora import fingerprint as name_of
    from orchestrator.corpora import configuration

    return name_of(configuration(sweep), _say, corpora)


def _corpora(runs_dir: Path) -> Path:
    return runs_dir / "corpora"


def _whole_name(prefix: str, corpora: Path) -> str:
    names = sorted(path.name for path in corpora.glob(f"{prefix}*")) if len(prefix) >= SHORTEST_PREFIX else []
    if len(names) != 1:
        raise Refused(
            f"corpus {prefix!r}: {len(names)} corpora in {corpora} begin so; allowed: at least "
            f"{SHORTEST_PREFIX} digits of a fingerprint, as many as make it one corpus, or a sweep file"
        )
    return names[0]


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def description(corpus: "Corpus") -> Record:
    """All that is known of a prepared corpus, as JSON values."""
    from model.fields import to_dict
    from model.training.corpus_documents import SPLITS

    facts = to_dict(corpus.facts)
    splits = {name: facts.pop(name) for name in SPLITS}
    for one in splits.values():
        one["bytes_per_token"] = one["bytes"] / one["tokens"] if one["bytes"] else None
    size = sum(path.stat().st_size for path in corpus.directory.iterdir())
    return {"directory": str(corpus.directory), "disk_bytes": size, **facts, "splits": splits}


def _sampled(corpus: "Corpus", split: str, count: int) -> list[Record]:
    from model.training.corpus_samples import first_documents

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


def _print(found: Record, *, as_json: bool) -> None:
    print(json.dumps(found, indent=1) if as_json else "\n".join(_lines(found)))


def _lines(found: Record) -> list[str]:
    config = found["config"]
    lines = [
        f"corpus {found['fingerprint']}",
        f"  {found['directory']}, {found['disk_bytes'] / 1e6:,.1f} MB",
        f"  source {config['source']}, tokenizer {_tokenizer(found)}",
        f"  vocabulary {config['vocabulary_size']:,}, the model's as well (it is not rounded up); "
        f"ids stored as {found['dtype']}",
    ]
    lines += [_split_line(name, facts) for name, facts in found["splits"].items()]
    if found["entropy_rate"] is not None:
        lines.append(
            f"  entropy rate {found['entropy_rate']:.6f} nats a token: the floor of the expected loss"
        )
    if found["empty"]:
        lines.append(f"  {found['empty']:,} empty documents were left out")
    lines += [f"  {name} was left out: not UTF-8 text" for name in found["skipped"]]
    for document in found.get("documents", ()):
        whole = "" if document["is_whole"] else " or more"
        lines.append(f"{document['split']}, {document['tokens']:,} tokens{whole}: {_content(document)}")
    return lines


def _tokenizer(found: Record) -> str:
    config = found["config"]
    said = {
        "bytes": "bytes",
        "bpe": f"byte-pair, trained on {_trained_on(found['sample_bytes'])}",
        "file": f"file {config['tokenizer_name']}",
        "hub": f"{config['tokenizer_name']} of the Hub",
        "ids": "none (the source holds tokens)",
    }[config["tokenizer"]]
    return said if config["source"] == "synthetic" else f"{said}, separator {found['separator']}"


def _trained_on(sample_bytes: int) -> str:
    if sample_bytes:
        return f"{sample_bytes / 1e6:,.0f} MB of the training split"
    return "the training split"


def _split_line(name: str, facts: Record) -> str:
    line = f"  {name}: {facts['tokens']:,} tokens"
    if facts["documents"]:
        line += f", {facts['documents']:,} document{'s' if facts['documents'] > 1 else ''}"
    if facts["bytes_per_token"] is not None:
        line += f", {facts['bytes_per_token']:.3f} bytes a token"
    if facts["ideal_loss"] is not None:
        line += f", {facts['ideal_loss']:.6f} nats a token under the process itself"
    return line


def _content(document: Record) -> str:
    if document["text"] is None:
        return " ".join(map(str, document["ids"]))
    return repr(document["text"])
