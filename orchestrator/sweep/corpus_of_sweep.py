"""The corpus of a sweep: from the section of its file to what is prepared under RUNS_DIR."""

from collections.abc import Callable
from pathlib import Path

from scalevec.model.data import CorpusConfig
from scalevec.model.data.corpus import Corpus, open_corpus
from scalevec.model.data.prepare import fingerprint, prepare
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.sweeps.expansion.trials import ENDLESS, NO_CORPUS, CorpusFacts
from scalevec.sweeps.sections.corpus import SAMPLE_MB, CorpusSection
from scalevec.sweeps.sections.schema import Sweep

RECORDS = ("jsonl", "parquet")
PACKAGES = "python-packages"
NOT_PREPARED = "not prepared"
"""The fingerprint of a corpus that nobody has looked at."""
_BYTES_A_MEGABYTE = 10**6


def configuration(sweep: Sweep) -> CorpusConfig:
    """The corpus that the file of ``sweep`` describes. Raises ``InvalidInputError`` for a trainer's."""
    if sweep.trainer is not None:
        raise InvalidInputError(f"sweep {sweep.name} has a trainer, whose text is its own affair: no corpus")
    section = sweep.corpus
    tokenizer = section.tokenizer
    kind = tokenizer.kind
    name = str((sweep.source.folder / tokenizer.file).resolve()) if tokenizer.file else tokenizer.hub or ""
    return CorpusConfig(
        section.source,
        kind,
        0 if kind in ("file", "hub") and tokenizer.size is None else section.vocabulary,
        files=section.packages or _paths(sweep, "files"),
        validation_files=_paths(sweep, "validation"),
        test_files=_paths(sweep, "test"),
        field=(section.field or "text") if section.source in RECORDS else "",
        tokenizer_name=name,
        separator=tokenizer.separator or "" if kind in ("file", "hub") else "",
        separator_id=tokenizer.separator or 0 if kind == "ids" else 0,
        dtype=section.shard_type if section.source == "shards" else "",
        sample_bytes=_sample_bytes(section) if kind == "bpe" else 0,
        in_place=section.source == "megatron" or bool(section.in_place),
    )


def _paths(sweep: Sweep, listed: str) -> tuple[str, ...]:
    return tuple(str(path.resolve()) for path in sweep.corpus_files(listed))


def _sample_bytes(section: CorpusSection) -> int:
    """Sources that were there before samples were learn from all of their training text."""
    default = SAMPLE_MB if section.source in (*RECORDS, PACKAGES) else 0
    return round((section.tokenizer.sample_mb or default) * _BYTES_A_MEGABYTE)


def unprepared_facts(sweep: Sweep) -> CorpusFacts:
    """Return the facts of a corpus not looked at: the vocabulary that the file says, and no end."""
    if sweep.trainer is not None:
        return NO_CORPUS
    return CorpusFacts(NOT_PREPARED, sweep.corpus.vocabulary, ENDLESS)


def known_facts(sweep: Sweep, runs_dir: Path, say: Callable[[str], None]) -> CorpusFacts:
    """Return the facts of the corpus where it is prepared under RUNS_DIR, else the unprepared ones.

    Writes nothing. Text is read only where some corpus is prepared and the files have changed since.
    """
    corpora = runs_dir / "corpora"
    if sweep.trainer is None and any(corpora.glob("*/corpus.json")):
        name = fingerprint(configuration(sweep), say, corpora)
        if (corpora / name).exists():
            return _facts(open_corpus(corpora, name))
    return unprepared_facts(sweep)


def prepared_facts(sweep: Sweep, runs_dir: Path, say: Callable[[str], None]) -> CorpusFacts:
    """Return the facts of the corpus; it is prepared under RUNS_DIR if it is not there yet."""
    if sweep.trainer is not None:
        return NO_CORPUS
    if runs_dir.exists() and not runs_dir.is_dir():
        raise InvalidInputError(f"{runs_dir}: is a file, where a folder is expected")
    return _facts(prepare(configuration(sweep), runs_dir / "corpora", say))


def _facts(corpus: Corpus) -> CorpusFacts:
    facts = corpus.facts
    held_out = (facts.validation.tokens, facts.test.tokens)
    return CorpusFacts(facts.fingerprint, facts.config.vocabulary_size, facts.train.tokens, held_out)
