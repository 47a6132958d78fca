"""Which columns of a table from elsewhere are the loss, N, tokens, seed, state, ..., by their names."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import pandas as pd

from scalevec.analysis.data.values import REQUIRED, number, typed
from scalevec.analysis.data.where import computed
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import plural, shortened

MOST_PROBLEMS = 10
_OF_A_RUN = re.compile(r"^((config|summary|params?|hparams?|metrics?|args|data|model)[./])+")
_PARAMETERS = (
    r"(n|num|total|model|non_?embedding|trainable)?_?(params|parameters|param(eter)?_count)"
    r"(_(non_?embedding|total))?"
)
_TOKENS = r"(n|num|total|train|training)?_?(tokens|token_count)(_(seen|trained|total|consumed|processed))?"
_HELD_OUT = r"(val|valid|validation|eval|test|heldout|held_out)"
_BESIDE = r"(z|aux|auxiliary|std|stderr|router|balance|balancing|kl|mtp)_"
"""What else is called a loss, beside that of predicting the next token."""
PATTERNS: Mapping[str, re.Pattern[str]] = {
    target: re.compile(pattern)
    for target, pattern in {
        "steps": r"_?(train(er)?_)?(global_|max_)?steps?|(max_)?iter(ation)?s?(_num)?",
        "loss": rf"{_HELD_OUT}(?!(_.*)?_{_BESIDE})(_.*)?_loss(_final)?|((final|lm)_)?loss_{_HELD_OUT}",
        "n_params": rf"{_PARAMETERS}|n",
        "n_tokens": rf"{_TOKENS}|d",
        "arm": r"arm|variant",
        "rung": r"rung|model_size",
        "seed": r"(random_|rng_|train_)?seed",
        "status": r"((run|job|trial|wandb|sys|slurm)_)*(state|status)",
        "run": r"(run_)?(id|uuid)|run",
        "flops": r"((n|num|total|train|training)_?)?(flops?|compute)(_total)?|c",
        "learning_rate": r"(max_|peak_)?(lr|learning_rate)",
        "wall_s": r"_?runtime|wall_(s|clock)|duration(_s)?",
        "optimizer": r"optim(izer)?(_name)?",
        "schedule": r"(lr_)?schedule(r)?(_type)?",
        "bytes_per_token": r"bytes_per_token",
    }.items()
}
"""What a column is taken for, by its name in lower case with ``_`` for all other signs."""
TEXTS = ("arm", "rung", "run", "optimizer", "schedule", "status")
_CHART = re.compile(r"(?P<run>.+) - (?P<key>.+)")
_LAYERS = re.compile(r"(n|num)_(hidden_)?layers?|layers|depth")
_WIDTH = re.compile(r"d_model|n_embd|hidden_size|hidden_dim|dim|width")
_STEP_TOKENS = re.compile(r"(batch_tokens|tokens_per_(step|batch|iter))")
_BATCH = re.compile(r"(global_|train_)?batch_size|batch_sequences")
_LENGTH = re.compile(r"(sequence|seq|context|max_seq|block)_?(length|len|size)|n_ctx|max_length")
_MOST_SEQUENCES = 2**14
"""A larger batch is one of tokens, or may be."""
_MULTIPLIES = re.compile(
    r".*(accum|grad_acc|micro_batches).*|gas|nproc.*|data_parallel.*|(.*_)?(world_size|dp(_size|_degree)?)|"
    r"(.*_)?((n|num)_?)?(gpus?|devices|nodes|hosts|processes|replicas|ranks|ntasks|tpus?(_cores)?)"
    r"(_count|_per_(node|host))?"
)
_TRAIN_LOSS = re.compile(r"(train(ing)?_)?(.*_)?loss")
_UNITS = {
    "perplexity": re.compile(r"(^|_)(ppl|perplexity)($|_)"),
    "bits-per-byte": re.compile(r"(^|_)(bpb|bits_per_byte)($|_)"),
    "bits": re.compile(r"(^|_)(bits?|bpt|bits_per_token)($|_)(?!per_byte)"),
}
"""What the name of a column of losses says of their unit, which ``--unit`` takes."""


@dataclass
class Findings:
    """What is found out about tables on their way."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, source: str, of_source: "Findings") -> None:
        """Add what was found out about one source."""
        if of_source.problems:
            lines = [f"  {problem}" for problem in of_source.problems]
            if self.problems[-len(lines) :] == lines:  # of many files that lack the same
                heading = len(self.problems) - len(lines) - 1
                self.problems[heading] = f"{self.problems[heading].removesuffix(':')}, {source}:"
            else:
                self.problems += [f"{source}:", *lines]
        self.notes += [f"{source}: {note}" for note in of_source.notes]

    def refuse(self) -> None:
        """Raise :class:`DataError` with all problems, if there are any."""
        if self.problems:
            more = len(self.problems) - MOST_PROBLEMS
            lines = [*self.problems[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
            raise DataError("\n".join(lines))


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows as they were ``given``, whose columns and arithmetic on them are asked for by expressions."""

    given: pd.DataFrame

    @cached_property
    def typed(self) -> pd.DataFrame:
        """The same with numbers as such, read once; by our names too, where one column is meant."""
        read, guesses = typed(self.given), guessed(self.given, {}, Findings())
        ours = {name: self.column(text) for name, text in guesses.items() if name not in read}
        return read.assign(**{name: read[column] for name, column in ours.items() if column is not None})

    def column(self, expression: str) -> str | None:
        """The column that ``expression`` is the name of, with or without backticks."""
        name = expression.strip()
        return next((column for column in (name, name.strip("`")) if column in self.given.columns), None)

    def cells(self, expression: str) -> "pd.Series[Any]":
        """The cells of a column, or the value of an expression, a row each. Raises :class:`DataError`."""
        column = self.column(expression)
        return computed(self.typed, expression) if column is None else self.given[column]

    def first_able(self, name: str, expressions: Sequence[str], findings: Findings) -> str:
        """The first of ``expressions`` that has a value; where none has, the first one's problem is added."""
        problems = []
        for expression in expressions:
            try:
                self.cells(expression)
            except DataError as error:
                problems.append(str(error))
            else:
                return expression
        findings.problems.append(f"--map {name}={expressions[0]}: {problems[0]}")
        return expressions[0]


def parsed_maps(given: Sequence[str]) -> dict[str, list[str]]:
    """``NAME=EXPRESSION`` by name. Raises :class:`DataError`."""
    wanted: dict[str, list[str]] = {}
    for text in given:
        name, _, expression = (part.strip() for part in text.partition("="))
        if not name.isidentifier() or not expression:
            raise DataError(
                f"--map is {text!r}; allowed: NAME=COLUMN or NAME=EXPRESSION, as in loss=val/loss; names: "
                f"{', '.join(PATTERNS)}"
            )
        meant = [target for target, pattern in PATTERNS.items() if pattern.fullmatch(plain_name(name))]
        meant += get_close_matches(name, PATTERNS, 1, 0.8)
        if name not in PATTERNS and meant:
            raise DataError(f"--map is {text!r}: what you mean is called {meant[0]} here")
        wanted.setdefault(name, []).append(expression)
    return wanted


def refuse_charts(rows: pd.DataFrame) -> None:
    """Raise :class:`DataError` where ``rows`` are a chart that W&B exported: steps, with columns per run."""
    charts = [chart for name in rows if (chart := _CHART.fullmatch(str(name)))]
    endings = {chart["key"] for chart in charts if not chart["key"].endswith(("__MIN", "__MAX"))}
    others = [plain_name(str(name)) for name in rows if not _CHART.fullmatch(str(name))]
    is_chart = len(charts) > 1 and len(endings) == len(others) == 1
    is_chart |= bool(charts) and len(others) == 1 and bool(PATTERNS["steps"].fullmatch(others[0]))
    if is_chart or any(f"{chart[0]}__MIN" in rows for chart in charts):
        runs = shortened(sorted({chart["run"] for chart in charts}))
        raise DataError(
            f"a chart that W&B exported, with columns per run ({runs}) and no row per run: export the table "
            "of runs"
        )


def plain_name(column: str) -> str:
    """``column`` in lower case, without the place where trackers keep it: ``config.n_embd`` is ``n_embd``."""
    name = str(column).strip()
    return re.sub(r"[^a-z0-9]+", "_", (_OF_A_RUN.sub("", name) or name).lower()).rstrip("_")


def is_training_loss(expression: str) -> bool:
    """Whether ``expression`` looks like the name of a loss on the text that a model was trained on."""
    name = plain_name(expression.strip("`"))
    return bool(re.search(r"train", name)) and bool(_TRAIN_LOSS.fullmatch(name))


def loss_notes(expression: str, unit: str | None, rows: pd.DataFrame) -> list[str]:
    """What the name of a column of losses says against it, and which ``rows`` are not compared."""
    notes = []
    if is_training_loss(expression):
        notes = [f"{expression} looks like the loss of the training text, not of held-out text"]
    name = plain_name(expression.strip("`"))
    if called := next(
        (each for each, pattern in _UNITS.items() if pattern.search(name) and each != unit), ""
    ):
        notes.append(f"{expression} looks like {called}: scalevec import --unit {called} takes it")
    if "stage" in rows and "stream" not in rows and (n_rows := int((rows["stage"] == "tuning").sum())):
        notes.append(f"{plural(n_rows, 'row')} of the stage tuning: they are not compared")
    return notes


def guessed(rows: pd.DataFrame, given: Mapping[str, str], findings: Findings) -> dict[str, str]:
    """The expression of each column of ours: as it is ``given``, else by the names of ``rows``."""
    # What tells the arms apart is no setting that the two sides of a pair must share.
    of_arm = given.get("arm", "").strip("`")
    names = {str(column): plain_name(str(column)) for column in rows.columns if column != of_arm}
    letters = [column for column, name in names.items() if name in ("n", "d", "c")]
    if len(letters) == 1 and letters[0].islower():  # as papers call N, D and C, or anything else
        del names[letters[0]]
    columns = dict(given)
    for target, pattern in PATTERNS.items():
        if target in given:
            continue
        candidates = [column for column, name in names.items() if pattern.fullmatch(name)]
        if target == "loss":  # where none is called held-out, any that is called loss and no more
            plain = [column for column, name in names.items() if name == "loss"]
            candidates += [column for column in plain if column == "loss" or not candidates]
        if target == "run" and _goes_along_runs(rows, columns):  # an id of each row is one of checkpoints
            each = [name for name in candidates if not rows[name].astype(str).duplicated().any()]
            candidates = [name for name in candidates if "run" in names[name] or name not in each]
        if target == "steps":  # those that were made, not those that were asked for
            candidates = [name for name in candidates if "max_" not in names[name]] or candidates
        chosen = _the_one(candidates, rows, target)
        if chosen is not None:
            columns[target] = quoted(chosen)
        elif len(candidates) > 1:
            taken = shlex.quote(f"{target}={quoted(candidates[0])}")
            what = f"{target} may be {', '.join(candidates)}: --map {taken}"
            (findings.problems if target in REQUIRED else findings.notes).append(what)
        elif target in REQUIRED:
            expression = _computed_from(target, names, columns, rows)
            if expression.startswith("="):
                columns[target] = expression[1:]
            else:
                findings.problems.append(expression)
    return columns


def _goes_along_runs(rows: pd.DataFrame, columns: Mapping[str, str]) -> bool:
    """Whether one arm, N and seed has several numbers of tokens."""
    known = {target: text.strip("`") for target, text in columns.items() if text.strip("`") in rows}
    at = [known[target] for target in ("arm", "n_params", "seed") if target in known]
    along = [known[target] for target in ("n_tokens", "steps") if target in known]
    as_text = rows[[*at, *along]].astype(str)  # lists have no hash
    return bool(at and along) and bool((as_text.groupby(at)[along].nunique() > 1).any(axis=None))


def has_loss_beside(rows: pd.DataFrame) -> bool:
    """Whether a column ``loss`` has another beside it, or one of held-out text but ``loss_validation``."""
    names = [plain_name(name) for name in map(str, rows) if name not in ("loss", "loss_validation")]
    return "loss" in rows and any(name == "loss" or PATTERNS["loss"].fullmatch(name) for name in names)


def quoted(column: str) -> str:
    """``column`` as an expression: in backticks unless it is a plain name."""
    return column if column.isidentifier() else f"`{column}`"


def _the_one(candidates: Sequence[str], rows: pd.DataFrame, target: str) -> str | None:
    """The only candidate, the one with our own name, or the first of several that hold the same."""
    exact = [column for column in candidates if column == target != "loss"]
    if exact or len(candidates) == 1:
        return (exact or candidates)[0]
    if candidates and all(rows[other].equals(rows[candidates[0]]) for other in candidates[1:]):
        return candidates[0]
    return None


def _computed_from(
    target: str, names: Mapping[str, str], columns: Mapping[str, str], rows: pd.DataFrame
) -> str:
    """``=EXPRESSION`` for a needed column that no name tells, or the sentence that asks for it."""
    if target == "n_params":
        layers, width = _only(_LAYERS, names), _only(_WIDTH, names)
        formula = "12 * layers * width * width"
        known = f"=12 * {layers} * {width} * {width}" if layers and width else ""
        return known or f"no column of parameters: --map n_params=COLUMN, or --map 'n_params={formula}'"
    if target == "n_tokens":
        return _tokens_of(names, columns, rows)
    losses = [column for column, name in names.items() if _TRAIN_LOSS.fullmatch(name)]
    if held_out := [column for column in losses if re.search(rf"(^|_){_HELD_OUT}_", names[column])]:
        return f"loss may be {', '.join(held_out)}, of held-out text: --map loss=COLUMN"
    if losses:
        return f"no loss of held-out text: --map loss=COLUMN; of training text may be {', '.join(losses)}"
    return "no column of losses: --map loss=COLUMN"


def _tokens_of(names: Mapping[str, str], columns: Mapping[str, str], rows: pd.DataFrame) -> str:
    steps = columns.get("steps")
    if steps and (per_step := _only(_STEP_TOKENS, names)):
        return f"={steps} * {per_step}"
    batch, length = _only(_BATCH, names), _only(_LENGTH, names)
    if not (steps and batch and length):
        return "no column of tokens: --map n_tokens=COLUMN, or a product: --map 'n_tokens=_step * 524288'"
    if max((number(str(cell)) or 0 for cell in rows[batch.strip("`")].unique()), default=0) > _MOST_SEQUENCES:
        ways = " or ".join(
            f"--map 'n_tokens={' * '.join(way)}'" for way in ((steps, batch), (steps, batch, length))
        )
        return f"{batch} may be in tokens or in sequences: {ways}"
    more = [column for column, name in names.items() if _MULTIPLIES.fullmatch(name)]
    product = " * ".join([steps, batch, length, *map(quoted, more)])
    if not more:
        return f"={product}"
    return f"tokens may be a product that {', '.join(more)} belong to or not: --map 'n_tokens={product}'"


def _only(pattern: re.Pattern[str], names: Mapping[str, str]) -> str | None:
    matching = [column for column, name in names.items() if pattern.fullmatch(name)]
    return quoted(matching[0]) if len(matching) == 1 else None
