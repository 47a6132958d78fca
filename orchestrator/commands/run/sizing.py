"""A template of a sweep, as large as one machine runs in the time that there is: by the planner."""

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scalevec import sweeps
from scalevec.model.data.system import usable_cpus
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.local.gpus import sign_of_gpus, visible_gpus
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.sweep.corpus_of_sweep import unprepared_facts
from scalevec.orchestrator.sweep.planning import planned
from scalevec.orchestrator.sweep.sweep_run import SweepRun

STDLIB_TOKENS = 3.3e6
"""Training tokens of Python's standard library with 1,024 byte-pair tokens, as seen with Python 3.11."""
BYTES_PER_TOKEN = 3.0
"""Of a text by which its tokens are guessed before it is read."""
TEMPLATES = Path(sweeps.__file__).resolve().parent / "templates"
_COMPRESSED = (".gz", ".zst")
TOKENS_FOR_GPUS = 1.6e7
"""Those of the longest trial of the smallest design for GPUs; a shorter text is for designs on CPUs."""
_RUNGS = (
    *("tiny-25k", "tiny-55k", "tiny-83k", "tiny-150k"),
    *("{name: tiny-310k, width: 80, layers: 4}", "{name: tiny-609k, width: 112, layers: 4}"),
    *("{name: 1.2m, width: 128, layers: 6}", "{name: 3.5m, width: 192, layers: 8}"),
)


TUNED_RUNGS = 2


class Scale(NamedTuple):
    """How large a sweep is; ``budget`` are tokens per parameter, the largest where there are several."""

    ladder: str
    budget: int
    seeds: int


def _first(rungs: int) -> str:
    return f"[{', '.join(_RUNGS[:rungs])}]"


ON_CPUS = (
    *(Scale(_first(2), budget, 2) for budget in (2, 4, 8)),
    *(Scale(_first(3), budget, 2) for budget in (8, 12, 16)),
    *(Scale(_first(4), 16, seeds) for seeds in (2, 3, 4, 6)),
    *(Scale(_first(4), 20, seeds) for seeds in (5, 6, 8)),
    *(Scale(_first(rungs), 20, 3) for rungs in range(5, len(_RUNGS) + 1)),
)
"""From smallest to largest; each token costs a processor about the same, so larger is longer."""
ON_GPUS = tuple(
    Scale(f"{{from: 1e6, to: {largest}, rungs: {rungs}}}", budget, 2)
    for largest, rungs, budget in (
        *(("4e6", 3, 4), ("4e6", 3, 8), ("1e7", 4, 8), ("1e7", 4, 16), ("3e7", 5, 16), ("3e7", 5, 20)),
        *(("6e7", 6, 20), ("1.2e8", 7, 20), ("2.5e8", 8, 20)),
    )
)
_SMALL, _MIDDLE, _LARGE = "{name: s, width: 16}", "{name: m, width: 24}", "{name: l, width: 32}"
OF_OWN_TRAINER = (
    Scale(f"[{_SMALL}, {_MIDDLE}]", 20, 2),
    *(Scale(f"[{_SMALL}, {_MIDDLE}, {_LARGE}]", 20, seeds) for seeds in (2, 3, 5)),
)
SCALES = {
    "quickstart": ON_CPUS,
    "ladder": ON_CPUS,
    "optimizer": ON_CPUS,
    "own-trainer": OF_OWN_TRAINER,
}
"""The templates, and how large each can be made."""
_FOR_GPUS = {
    "trial": "{precision: bfloat16}",
    "  learning_rate": "[2e-3, 4e-3, 8e-3]",
    "resources": "{default: {time: auto, gpus: 1}}",
}
"""Lines of a template that are others where trials run on GPUs; batches are those of the generated rungs."""


@dataclass(frozen=True)
class Text:
    """What a sweep trains on, and how many tokens it has, about; without ``files`` that of the template."""

    source: str = ""
    files: str = ""
    tokens: float = STDLIB_TOKENS

    def corpus(self, *, on_gpus: bool) -> str:
        """The section of the sweep file."""
        tokens = "{bpe: 8192}, sequence_length: 512" if on_gpus else "{bpe: 1024}, sequence_length: 128"
        return f"{{source: {self.source}, files: [{json.dumps(self.files)}], tokenizer: {tokens}}}"


@dataclass(frozen=True)
class SizedSweep:
    """A sweep file and what its plan says; ``at_a_time`` trials run on this machine."""

    content: str
    trials: Sequence[Mapping[str, Any]]
    at_a_time: int

    @property
    def seconds(self) -> float:
        """How long it takes, about."""
        left = (float(row["seconds"] - row["seconds_from_trunk"]) for row in self.trials)
        return sum(left) / self.at_a_time

    @property
    def longest(self) -> int:
        """Tokens of the longest trial."""
        return max(int(row["n_tokens"]) for row in self.trials)

    def fits(self, seconds: float, text: Text) -> bool:
        """Whether it ends in time, and no trial sees text twice."""
        return self.seconds <= seconds and self.longest <= text.tokens


def text_in(folder: Path, beside: Path) -> Text:
    """Return the text in ``folder`` for a sweep file in ``beside``: of its kinds of files the largest.

    Raises ``InvalidInputError`` where there is none.
    """
    sizes: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            last = 2 if path.suffix in _COMPRESSED else 1
            sizes["".join(path.suffixes[-last:])] += path.stat().st_size
    if not any(sizes.values()):
        raise InvalidInputError(f"--data is {folder}, which has no text; allowed: a folder of text files")
    [(ending, size)] = sizes.most_common(1)
    source = next((name for name in ("jsonl", "parquet") if ending.startswith(f".{name}")), "text")
    files = f"{glob.escape(os.path.relpath(folder.resolve(), beside.resolve()))}/**/*{ending}"
    return Text(source, files, size / BYTES_PER_TOKEN)


def sized(template: str, name: str, folder: Path, minutes: float, text: Text) -> SizedSweep:
    """Return the ``template`` at the largest scale that fits; the smallest where none does.

    Args:
        template: One of :data:`SCALES`.
        name: What the sweep is called.
        folder: Where its file will be, beside which its text is looked up.
        minutes: How long it may take on this machine.
        text: What it trains on.
    """
    content = (TEMPLATES / f"{template}.yaml").read_text(encoding="utf-8")
    content = content.replace("$schema=../", f"$schema={TEMPLATES.parent}/", 1)
    is_for_gpus = text.files and text.tokens >= TOKENS_FOR_GPUS and sign_of_gpus()
    gpus = visible_gpus().names if is_for_gpus else ()
    scales, lines = (ON_GPUS, _FOR_GPUS) if gpus else (SCALES[template], {})
    at_a_time = len(gpus) or usable_cpus()
    lines = lines | {"name": name} | ({"corpus": text.corpus(on_gpus=bool(gpus))} if text.files else {})
    budgets = sweeps.loads(content, look_for_files=False).budgets
    smallest, *larger = (
        _at(edited(content, lines | _lines_of(scale, budgets)), folder, at_a_time) for scale in scales
    )
    return next((it for it in reversed(larger) if it.fits(60 * minutes, text)), smallest)


def _at(content: str, folder: Path, at_a_time: int) -> SizedSweep:
    # A rate that is tuned at one rung is carried unchanged, and larger models want smaller ones.
    ladder = sweeps.loads(
        re.sub(r"(?m)^  rungs: .*\n", "", content), folder=folder, look_for_files=False
    ).ladder
    content = edited(content, {"  rungs": f"[{', '.join(rung.name for rung in ladder[:TUNED_RUNGS])}]"})
    sweep = sweeps.loads(content, folder=folder, look_for_files=False)
    nowhere = TEMPLATES / "runs"  # where nothing has been run
    run = SweepRun(sweep, nowhere, Progress(), unprepared_facts(sweep), only_plan=True)
    return SizedSweep(content, planned(run), at_a_time)


def _lines_of(scale: Scale, budgets: Sequence[float]) -> dict[str, str]:
    scaled = [f"{scale.budget * budget / max(budgets):g}" for budget in budgets]
    return {
        "ladder": scale.ladder,
        "tokens_per_parameter": scaled[0] if len(scaled) == 1 else f"[{', '.join(scaled)}]",
        "seeds": f"{list(range(scale.seeds))}",
    }


def edited(content: str, lines: Mapping[str, str]) -> str:
    """Return ``content`` with other values at the keys of ``lines``; comments stay in their column."""
    for key, value in lines.items():

        def line(match: re.Match[str], start: str = f"{key}: {value}") -> str:
            return f"{start:<{match.start(1) - match.start()}}{match[1]}" if match[1] else start

        content = re.sub(rf"(?m)^{key}: .*?( #.*)?$", line, content, count=1)
    return content
