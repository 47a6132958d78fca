"""The shards of a corpus: those of texts from parts that were made one by one, those of a process drawn."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from scalevec.model.data import synthetic
from scalevec.model.data.census import Census
from scalevec.model.data.documents import SPLITS, last_ranks
from scalevec.model.data.durable_files import complete_directory, write_synced
from scalevec.model.data.held_out import held_out
from scalevec.model.data.preparation.meter import Meter, Progress
from scalevec.model.data.preparation.parts import (
    PartFacts,
    Parts,
    documents,
    facts_of,
    make_parts,
    parts_for,
)
from scalevec.model.data.preparation.processes import Workers, threads_of_the_library
from scalevec.model.data.preparation.runs import ORIGINS, TextRuns, keys_of, ranges
from scalevec.model.data.preparation.shard_writer import ShardWriter
from scalevec.model.data.prepared import SplitFacts
from scalevec.model.data.sources.files import CorpusError
from scalevec.model.data.specification import (
    CorpusConfig,
    bytes_per_token,
    drawn_splits,
    stored_type,
)
from scalevec.model.data.synthetic import TokenProcess
from scalevec.model.data.tokenizers import TOKENIZERS, TokenizerPlan, sample

_TOKENIZER = "tokenizer.json"


def make_documents(
    work: Path,
    config: CorpusConfig,
    plan: TokenizerPlan,
    census: Census,
    workers: Workers,
    progress: Progress,
) -> tuple[Parts, list[PartFacts]]:
    """The tokenizer and the parts of all shards, made under ``work`` unless they are there.

    Raises :class:`CorpusError` where the text that waits there is not that of ``census``.
    """
    size = sum(census.sizes.values())
    parts = Parts(
        config,
        census.runs,
        size,
        parts_for(size),
        _last_ranks(config, census),
        work / f"parts-{census.fingerprint[:16]}",
        stored_type(config.vocabulary_size),
        str(work / f"tokenizer-{census.fingerprint[:16]}" / _TOKENIZER),
        plan.separator,
    )
    _make_tokenizer(parts, plan, census.sample_bytes, workers, progress)
    finished = make_parts(parts, workers, progress)
    total = 0
    for part in finished:
        total ^= int(part.checksum, 16)
    if total != census.checksum:
        raise CorpusError(
            f"what was read of the corpus is damaged; remove {work} and prepare the corpus again"
        )
    census.runs.remove_text()
    return parts, finished


def _last_ranks(config: CorpusConfig, census: Census) -> dict[str, str]:
    count = census.counts["train"]
    quota = held_out(census.sizes["train"], bytes_per_token(config))
    of_files = _of_files(census.runs, sum(census.counts.values()))
    return {
        name: rank.hex() for name, rank in last_ranks(of_files, drawn_splits(config), count, quota).items()
    }


def _of_files(runs: TextRuns, n_documents: int) -> Iterator[tuple[bytes, int]]:
    """Rank and bytes of the documents that are in no held-out split's files, in the order of their rank."""
    for within in ranges(n_documents // (1 << 14) + 1):
        rows = runs.places(within)
        rows = rows[rows["origin"] == ORIGINS.index("train")]
        yield from zip(keys_of(rows, "rank"), rows["size"].tolist(), strict=True)


def _make_tokenizer(
    parts: Parts, plan: TokenizerPlan, sample_bytes: int, workers: Workers, progress: Progress
) -> None:
    """tokenizer.json of ``parts``, unless it is there or there is none to keep."""
    path = Path(parts.tokenizer)
    if path.exists() or parts.config.tokenizer in ("bytes", "ids"):
        return
    if parts.config.tokenizer == "bpe":
        sampled = f" on the first {sample_bytes / 1e6:,.0f} MB" if sample_bytes else ""
        progress(f"training a tokenizer of {parts.config.vocabulary_size:,} tokens{sampled}")
        list(workers.each(train_tokenizer, [(parts, sample_bytes)]))
    else:
        _keep_tokenizer(path, plan.make(()).serialized())


def train_tokenizer(task: tuple[Parts, int]) -> None:
    """Train the tokenizer of ``parts`` on so many bytes of the training split (0: on all)."""
    parts, sample_bytes = task
    training = (content for split, content in documents(parts) if split == "train")
    with threads_of_the_library():
        tokenizer = TOKENIZERS[parts.config.tokenizer](parts.config).make(sample(training, sample_bytes))
    _keep_tokenizer(Path(parts.tokenizer), tokenizer.serialized())


def _keep_tokenizer(path: Path, serialized: str | None) -> None:
    assert serialized is not None
    with complete_directory(path.parent) as partial:
        write_synced(partial / path.name, serialized.encode())


def write_documents(
    directory: Path, parts: Parts, finished: Sequence[PartFacts], progress: Progress
) -> dict[str, SplitFacts]:
    """The tokenizer and the shards of all splits into ``directory``; what the shards hold."""
    if Path(parts.tokenizer).exists():
        write_synced(directory / _TOKENIZER, Path(parts.tokenizer).read_bytes())
    with ExitStack() as stack:
        writers = _writers(stack, directory, parts.dtype)
        for number, part in enumerate(finished):
            for name, writer in writers.items():
                writer.append(parts.path(number) / f"{name}.bin", facts_of(part, name))
        return _finished(writers, {}, progress)


def _writers(stack: ExitStack, directory: Path, dtype: str) -> dict[str, ShardWriter]:
    return {name: stack.enter_context(ShardWriter(directory / f"{name}.bin", dtype)) for name in SPLITS}


def _finished(
    writers: Mapping[str, ShardWriter], ideal: Mapping[str, float], progress: Progress
) -> dict[str, SplitFacts]:
    split_facts = {}
    for name, writer in writers.items():
        split_facts[name] = writer.finish(ideal.get(name))
        progress(f"{name}: {split_facts[name].tokens:,} tokens")
    return split_facts


def write_synthetic(
    directory: Path, process: TokenProcess, dtype: str, progress: Progress
) -> dict[str, SplitFacts]:
    """The shards of all splits of a synthetic corpus into ``directory``; what they hold."""
    meter = Meter(progress, "drew blocks")
    with ExitStack() as stack:
        writers = _writers(stack, directory, dtype)
        for name, writer in writers.items():
            for block in synthetic.blocks(process, name):
                writer.write(block)
                meter.count(block.nbytes)
        ideal = {name: synthetic.ideal_loss(process, name) for name in SPLITS}
        return _finished(writers, ideal, progress)
