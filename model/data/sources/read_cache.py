"""Files that were read before are not read again only to learn that nothing has changed."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scalevec.model.data.durable_files import read_regular
from scalevec.model.data.sources.sources import files_found
from scalevec.model.data.specification import FORMAT_VERSION, CorpusConfig
from scalevec.model.fields import to_dict
from scalevec.model.identity import digest

YOUNG_NS = 2_000_000_000
"""A file that was written so shortly ago may change again without its time telling."""


def files_key(config: CorpusConfig, tokenizer: Mapping[str, Any]) -> str:
    """A hash of what is read and how: names, sizes, times of all files, tokenizer, configuration, version.

    Empty where there are no files, or where one is too young for its time to tell a later change.
    """
    patterns = (config.files, config.validation_files, config.test_files)
    stats = [[(str(path), path.stat()) for path in files_of(config, some)] for some in patterns]
    times = [stat.st_mtime_ns for some in stats for _, stat in some]
    if not times or max(times) > time.time_ns() - YOUNG_NS:
        return ""
    seen = [[(name, stat.st_size, stat.st_mtime_ns) for name, stat in some] for some in stats]
    preparation = {
        "config": to_dict(config, identity=True),
        "tokenizer": dict(tokenizer),
        "format_version": FORMAT_VERSION,
    }
    return digest({**preparation, "files": seen})


def files_of(config: CorpusConfig, patterns: Sequence[str]) -> list[Path]:
    """The files that are read; the data of an index is beside it."""
    paths = files_found(config, patterns)
    if config.source == "megatron":
        paths += [path.with_suffix(".bin") for path in paths if path.with_suffix(".bin").is_file()]
    return paths


def remembered(corpora_dir: Path, key: str) -> str | None:
    """The fingerprint of the corpus under ``corpora_dir`` that was made from the files of ``key``."""
    if not key:
        return None
    for path in sorted(corpora_dir.glob("*/corpus.json")):
        try:
            facts = json.loads(read_regular(path))
        except (OSError, ValueError, RecursionError):  # whoever opens that corpus will say so
            continue
        if isinstance(facts, dict) and facts.get("files_key") == key:
            return path.parent.name
    return None
