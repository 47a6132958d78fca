"""Tables as strangers bring them, and expressions as they type them: from a seed, half of them damaged."""

import io
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import NUMBERS
from scalevec.analysis.registry import LAWS, TABLES
from scalevec.orchestrator.cli.main import main

LONGEST_S = 30.0
MOST_BYTES = 2**30
ODD_VALUES: tuple[object, ...] = (
    *(None, float("nan"), float("inf"), -1.0, 0.0, 1e-300, 1e300, 0.5, 2**63 + 1, -(2**70), True),
    *("", " ", "a", "=1+1", "\x1b[2J", "\x00", "é☃", "1e5", "nan", "2024-01-02"),
    *("x" * 3000, "'", '"', "`", "{}", "<b>"),
)
ODDER_VALUES: tuple[object, ...] = ([1, 2], {"a": 1}, b"\xff", pd.Timestamp("2024-01-02"), pd.Timedelta("1h"))
COLUMNS = (
    *("n_params", "n_tokens", "loss", "arm", "seed", "rung"),
    *("cluster", "flops", "status", "lr_status", "wall_s"),
    *("stage", "optimizer", "schedule", "trial_id", "epochs", "device", "tokens_per_s", "steps"),
    *("learning_rate", "n_params_total", "n_params_embedding", "n_params_scale_vectors", "vector_decay"),
    *("vector_placement", "train/loss", "loss_other", "budget", "peak_memory_bytes", "tokens_per_parameter"),
    *("sweep", "corpus", "stream", "identity_version", "loss_blocks", "block_tokens"),
)
STATUSES = ("completed", "diverged", "failed", "pending", "running", "cancelled")


def sound_table(draw: Random) -> pd.DataFrame:
    """Rows on a power law in one of the usual designs."""
    rng = np.random.default_rng(draw.randrange(2**32))
    n_sizes, n_seeds = draw.choice([1, 2, 4, 5, 6, 7]), draw.randint(1, 3)
    n_budgets = draw.choice([1, 1, 1, 2, 4])
    sizes = np.geomspace(3e4, 10 ** draw.uniform(4.6, 9), n_sizes).round()
    rows = [
        {"arm": arm, "n_params": n, "n_tokens": ratio * n, "seed": seed}
        for arm in ("baseline", "new", "third")[: draw.choice([1, 2, 2, 2, 3])]
        for n in sizes
        for ratio in (16, 32, 64, 128)[:n_budgets]
        for seed in range(n_seeds)
    ]
    table = pd.DataFrame(rows)
    noise = rng.normal(0, draw.choice([0, 1e-12, 3e-3, 0.3]), len(table))
    table["loss"] = 40 * (6 * table.n_params * table.n_tokens) ** -0.09 * np.exp(noise)
    return table


def _extended(table: pd.DataFrame, draw: Random) -> pd.DataFrame:
    """The table with some further columns, mostly sensible ones."""
    values: dict[str, Callable[[], object]] = {
        "status": lambda: draw.choice(STATUSES if draw.random() < 0.3 else ("completed",)),
        "lr_status": lambda: draw.choice(("tuned", "fixed", "censored", "carried")),
        "stage": lambda: draw.choice(("comparison", "comparison", "tuning")),
        "vector_decay": lambda: draw.choice(("all", "none", "input")),
        "vector_placement": lambda: draw.choice(("none", "input")),
        "device": lambda: draw.choice(("cpu", "simulated")),
    }
    for name in draw.sample(COLUMNS[4:], draw.randint(0, 6)):
        if name in table and draw.random() < 0.7:
            continue
        numbers = draw.random() < (0.97 if name in NUMBERS else 0.3)
        value = values.get(
            name, (lambda: round(draw.uniform(1, 9), 2)) if numbers else (lambda: draw.choice("abc"))
        )
        table[name] = [value() for _ in range(len(table))]
    if draw.random() < 0.2:
        table["flops"] = 10.0 ** draw.choice([17, 18]) * np.array(
            [draw.choice([1, 3]) for _ in range(len(table))]
        )
    return table


def _damaged(table: pd.DataFrame, draw: Random, values: tuple[object, ...]) -> pd.DataFrame:
    """The table after one thing that happens to tables."""
    kind = draw.randrange(9)
    name = draw.choice(list(table.columns)) if len(table.columns) else "loss"
    if kind == 0 or table.empty or not len(table.columns):
        return table.iloc[: draw.randint(0, 3)]
    if kind == 1:
        return table.drop(columns=name)
    if kind == 2:
        return table.rename(columns={name: str(draw.choice(values)) or "b"})
    if kind == 3:
        return pd.concat(
            [table, table.sample(frac=0.5, random_state=draw.randrange(2**32))], ignore_index=True
        )
    if kind == 4:
        return table.sample(frac=draw.random(), random_state=draw.randrange(2**32), ignore_index=True)
    if kind == 5:
        return table.assign(**{name: [draw.choice(values)] * len(table)})
    table = table.astype({name: object}).reset_index(drop=True)
    for row in draw.sample(range(len(table)), min(len(table), draw.choice([1, 1, 2, 20]))):
        table.at[row, name] = draw.choice(values)
    return table


def odd_table(draw: Random, folder: Path) -> Path:
    """A file with a table, damaged once or several times, as CSV where Parquet cannot hold it."""
    table = _extended(sound_table(draw), draw)
    parquet = draw.random() < 0.25
    for _ in range(draw.choice([0, 0, 0, 0, 1, 1, 2])):
        table = _damaged(table, draw, (*ODD_VALUES, *ODDER_VALUES) if parquet else ODD_VALUES)
    if parquet:
        try:
            table.to_parquet(folder / "t.parquet", index=False)
        except (ValueError, TypeError, OverflowError):
            parquet = False
    if not parquet:
        text = table.to_csv(index=False).encode(errors="replace")
        (folder / "t.csv").write_bytes(
            text if draw.random() < 0.97 else text[: draw.randrange(len(text) + 1)]
        )
    return folder / ("t.parquet" if parquet else "t.csv")


def odd_expression(draw: Random, depth: int = 0) -> str:
    """What may stand behind --where: mostly of the grammar, sometimes a few characters of nonsense."""
    if draw.random() < 0.04:
        return "".join(
            draw.choice("()[]'\"`<>=!&|+-*/., aloss09\\\n\x00é") for _ in range(draw.randint(0, 30))
        )
    kind = draw.randrange(6 if depth < 3 else 4)
    if kind == 4:
        parts = [f"({odd_expression(draw, depth + 1)})" for _ in range(2)]
        return draw.choice([" and ", " or "]).join(parts)
    if kind == 5:
        return f"not ({odd_expression(draw, depth + 1)})"
    column = draw.choice((*COLUMNS[:5], *COLUMNS[:5], *COLUMNS))
    name = column if column.isidentifier() and draw.random() < 0.8 else f"`{column}`"
    value = draw.choice(
        ["1", "0.5", "1e9", "-3", "'a'", "'completed'", "'baseline'", "True", "loss", "'2024-01-02'"]
    )
    if kind == 3:
        return f"{name} {draw.choice(['in', 'not in'])} ({value}, {draw.choice(['2', repr('new')])})"
    return f"{name} {draw.choice(['<', '<=', '>', '==', '!=', '+', 'is'])} {value}"


def odd_command(draw: Random, path: Path) -> list[str]:
    """A reading command for the table, with options of which most are allowed."""
    command = draw.choice(["fit", "fit", "compare", "compare", "table", "report", "figures", "results"])
    if command == "results":
        return [command, str(path), "--format", draw.choice(["csv", "json", "parquet"])]
    options = [command, str(path)]
    if command == "table":
        options.append(draw.choice(list(TABLES)))
    if command in ("table", "compare", "report", "figures"):
        options += ["--reference", draw.choice(["baseline"] * 9 + ["new", "a"])]
    if command == "figures":
        options += ["--format", "svg", "-o", str(path.parent / "drawn")]
    if command == "report":
        options += ["-o", str(path.parent / "report.html")]
    options += ["--bootstrap", draw.choice(["0", "20"])]
    for chance, option, values in (
        (0.5, "--law", list(LAWS)),
        (0.2, "--x", ["N", "D", "C"]),
        (0.06, "--y", ["loss_other", "train/loss", "arm", "wall_s", "seed"]),
        (0.1, "--cluster", ["row", "rung", "arm", "trial_id", "seed", "n_params"]),
        (0.08, "--c-convention", ["given", "6nd", "counted"]),
        (0.06, "--n-convention", ["total", "with-embedding", "matrices"]),
        (0.1, "--loss", ["huber", "l2"]),
        (0.1, "--residual", ["linear"]),
        (0.04, "--settings", ["optimizer", "device", "epochs"]),
    ):
        if draw.random() < chance:
            options += [option, draw.choice(values)]
    if command in ("fit", "compare") and draw.random() < 0.1:
        options += ["--hold-out", draw.choice(["none", "seed", "rung", "loss < 3", "arm"])]
    if draw.random() < 0.25:
        options += ["--where", odd_expression(draw)]
    if command in ("fit", "compare") and draw.random() < 0.3:
        options.append("--json")
    return options


def fault_of(number: int, folder: Path) -> str:
    """Run one drawn command in this process: what is wrong with how it ended, or nothing."""
    draw = Random(number)
    for old in folder.glob("*.*"):
        old.unlink()
    arguments = odd_command(draw, odd_table(draw, folder))
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    began, before = time.process_time(), _peak_bytes()
    code: object = None
    with redirect_stdout(out), redirect_stderr(err), patch("sys.argv", ["scalevec", *arguments]):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        except BaseException as error:  # noqa: BLE001 (that is what is looked for)
            code = f"{type(error).__name__}: {error}"
    took = time.process_time() - began
    # Beyond what earlier tests of this process left.
    grown = _peak_bytes() - before
    problems = list(_problems(code, err.getvalue(), took, grown))
    return f"table {number}: {' '.join(arguments)[:300]}: {'; '.join(problems)}" if problems else ""


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _problems(code: object, message: str, took: float, grown: int) -> Iterator[str]:
    if code not in (0, 2):
        yield f"exit {code}: {message[-500:]}"
    if "Traceback" in message or "internal error" in message:
        yield "a fault"
    if code == 2 and not 0 < len(message) < 3_000:
        yield f"a message of {len(message)} characters"
    if took > LONGEST_S:
        yield f"{took:.1f} s"
    if grown > MOST_BYTES:
        yield "more than 1 GiB"
