"""Which columns of a table from elsewhere are the loss, N, tokens, seed, state, ..., by their names."""

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from scalevec.analysis.data.runs import shortened
from scalevec.analysis.data.values import REQUIRED
from scalevec.analysis.errors import DataError
from scalevec.analysis.imports.checks import Findings

_OF_A_RUN = re.compile(r"^(config|summary|params?|hparams?|metrics?|args|data|model)[./]")
_PARAMETERS = (
    r"(n|num|total|model|non_?embedding|trainable)?_?(params|parameters|param(eter)?_count)"
    r"(_(non_?embedding|total))?"
)
_TOKENS = r"(n|num|total|train|training)?_?(tokens|token_count)(_(seen|trained|total|consumed|processed))?"
_HELD_OUT = r"(val|valid|validation|eval|test|heldout|held_out)"
PATTERNS: Mapping[str, re.Pattern[str]] = {
    target: re.compile(pattern)
    for target, pattern in {
        "steps": r"_?(global_|train_|max_)?steps?|(max_)?iter(ation)?s?",
        "loss": rf"{_HELD_OUT}(_.*)?_loss(_final)?|(final_)?loss_{_HELD_OUT}",
        "n_params": rf"{_PARAMETERS}|n",
        "n_tokens": rf"{_TOKENS}|d",
        "arm": r"arm|variant",
        "rung": r"rung|model_size",
        "seed": r"(random_|rng_|train_)?seed",
        "status": r"state|status",
        "run": r"(run_)?(id|uuid)|run",
        "flops": r"((n|num|total|train|training)_?)?(flops?|compute)(_total)?|c",
        "learning_rate": r"(max_|peak_)?(lr|learning_rate)",
        "wall_s": r"_?runtime|wall_(s|time|clock)|duration(_s)?",
        "optimizer": r"optim(izer)?(_name)?",
        "schedule": r"(lr_)?schedule(r)?(_type)?",
        "bytes_per_token": r"bytes_per_token",
    }.items()
}
"""What a column is taken for, by its name in lower case with ``_`` for all other signs."""
TEXTS = ("arm", "rung", "run", "optimizer", "schedule", "status")
CHART = re.compile(r"(?P<run>.+) - (?P<metric>.+?)(?P<bound>__MIN|__MAX)?")
_LAYERS = re.compile(r"(n|num)_(hidden_)?layers?|layers|depth")
_WIDTH = re.compile(r"d_model|n_embd|hidden_size|hidden_dim|dim|width")
_STEP_TOKENS = re.compile(r"(batch_tokens|tokens_per_(step|batch|iter))")
_BATCH = re.compile(r"(global_|train_)?batch_size|batch_sequences")
_LENGTH = re.compile(r"(sequence|seq|context|max_seq|block)_?(length|len|size)|n_ctx|max_length")
_MULTIPLIES = re.compile(
    r"(gradient_accumulation(_steps)?|grad_accum(_steps)?|world_size|num_devices|n_gpus?)"
)
_TRAIN_LOSS = re.compile(r"(train(ing)?_)?(.*_)?loss")


def chart_series(rows: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """The run and the metric of each column of a chart that W&B exported, without its bounds."""
    charts = [(str(name), CHART.fullmatch(str(name))) for name in rows]
    return {name: (chart["run"], chart["metric"]) for name, chart in charts if chart and not chart["bound"]}


def refuse_charts(rows: pd.DataFrame) -> None:
    """Raise :class:`DataError` where ``rows`` are a chart that W&B exported: steps, with columns per run."""
    series = chart_series(rows)
    if any(f"{name}__MIN" in rows for name in series):
        runs = shortened(sorted({run for run, _ in series.values()}))
        raise DataError(
            f"a chart that W&B exported, with columns per run ({runs}) and no row per run: export the table "
            "of runs, and give the chart to import beside it as --history"
        )


def plain_name(column: str) -> str:
    """``column`` in lower case, without the place where trackers keep it: ``config.n_embd`` is ``n_embd``."""
    name = str(column).strip()
    while stripped := _OF_A_RUN.sub("", name, count=1):
        if stripped == name:
            break
        name = stripped
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).rstrip("_")


def is_training_loss(expression: str) -> bool:
    """Whether ``expression`` looks like the name of a loss on the text that a model was trained on."""
    name = plain_name(expression.strip("`"))
    return bool(re.search(r"train", name)) and bool(_TRAIN_LOSS.fullmatch(name))


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
        if target == "loss" and candidates and "loss" in names:
            candidates.append("loss")
        chosen = _the_one(candidates, rows, target)
        if chosen is not None:
            columns[target] = quoted(chosen)
        elif len(candidates) > 1:
            what = f"{target} may be {', '.join(candidates)}: --map {target}={quoted(candidates[0])}"
            (findings.problems if target in REQUIRED else findings.notes).append(what)
        elif target in REQUIRED:
            expression = _computed_from(target, names, columns)
            if expression.startswith("="):
                columns[target] = expression[1:]
            else:
                findings.problems.append(expression)
    return columns


def quoted(column: str) -> str:
    """``column`` as an expression: in backticks unless it is a plain name."""
    return column if column.isidentifier() else f"`{column}`"


def _the_one(candidates: Sequence[str], rows: pd.DataFrame, target: str) -> str | None:
    """The only candidate, the one with our own name, or the first of several that hold the same."""
    exact = [column for column in candidates if column == target != "loss"]
    if exact or len(candidates) == 1:
        return (exact or candidates)[0]
    if len(candidates) > 1 and all(rows[other].equals(rows[candidates[0]]) for other in candidates[1:]):
        return candidates[0]
    return None


def _computed_from(target: str, names: Mapping[str, str], columns: Mapping[str, str]) -> str:
    """``=EXPRESSION`` for a needed column that no name tells, or the sentence that asks for it."""
    if target == "loss":
        return _loss_of(names)
    if target == "n_params":
        layers, width = _only(_LAYERS, names), _only(_WIDTH, names)
        if layers and width:
            return f"=12 * {layers} * {width} * {width}"
        return (
            "no column of parameters: --map n_params=COLUMN, or --map 'n_params=12 * layers * width * width'"
        )
    return _tokens_of(names, columns)


def _loss_of(names: Mapping[str, str]) -> str:
    if "loss" in names:
        return "=loss"
    training = [column for column, name in names.items() if _TRAIN_LOSS.fullmatch(name)]
    if training:
        return f"no loss of held-out text: --map loss=COLUMN; of training text may be {', '.join(training)}"
    return "no column of losses: --map loss=COLUMN"


def _tokens_of(names: Mapping[str, str], columns: Mapping[str, str]) -> str:
    steps = columns.get("steps")
    per_step = _only(_STEP_TOKENS, names)
    if steps and per_step:
        return f"={steps} * {per_step}"
    batch, length = _only(_BATCH, names), _only(_LENGTH, names)
    more = [column for column, name in names.items() if _MULTIPLIES.fullmatch(name)]
    if steps and batch and length and not more:
        return f"={steps} * {batch} * {length}"
    if steps and batch and length:
        product = " * ".join([steps, batch, length, *map(quoted, more)])
        return f"tokens may be a product that {', '.join(more)} belong to or not: --map 'n_tokens={product}'"
    return "no column of tokens: --map n_tokens=COLUMN, or a product: --map 'n_tokens=_step * 524288'"


def _only(pattern: re.Pattern[str], names: Mapping[str, str]) -> str | None:
    matching = [column for column, name in names.items() if pattern.fullmatch(name)]
    return quoted(matching[0]) if len(matching) == 1 else None
