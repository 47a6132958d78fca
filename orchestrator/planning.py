"""The plan of a sweep: every trial with its cost, before anything is spent."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from model.accounting import count_parameters
from orchestrator.estimates import cost
from orchestrator.progress import duration
from orchestrator.sweep_run import COMPARISON, Member
from sweeps import epochs

if TYPE_CHECKING:
    from orchestrator.sweep_run import SweepRun

Row = dict[str, Any]


def planned(run: "SweepRun") -> list[Row]:
    """One row a trial; ``trial_id`` is None where a tuned field is still to be chosen."""
    named = [_row(run, member, run.id_of(member.trial)) for member in run.members()]
    waiting = [
        _row(run, Member(cell, COMPARISON, cell.trial(seed), "to be tuned"), None)
        for cell in run.cells
        if run.tuner.is_open(cell)
        for seed in cell.seeds
    ]
    return named + waiting


def _row(run: "SweepRun", member: "Member", name: str | None) -> Row:
    trial, options = member.trial, run.options(member)
    counts = count_parameters(trial.model)
    state = run.directory(trial).state().state if name else "pending"
    return {
        "trial_id": name,
        "stage": member.stage,
        "arm": member.cell.arm,
        "rung": member.cell.rung,
        "seed": trial.seed,
        "learning_rate": trial.optimizer.learning_rate if name else None,
        "lr_status": member.lr_status,
        "n_params": counts.matrices,
        "n_params_total": counts.total,
        "n_params_scale_vectors": counts.scale_vectors,
        "n_tokens": trial.tokens,
        "epochs": epochs(trial, run.corpus_facts),
        "state": state,
        **asdict(cost(trial, options.device, options.keep, options.micro_batch)),
    }


def show(run: "SweepRun", trials: Sequence[Row], jobs: int, *, every_trial: bool) -> None:
    """Print the plan: a line for each stage, rung and arm (or each trial), then the sum."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("stage", "rung", "arm"):
        table.add_column(name, no_wrap=True)
    for name in ("trials", "done", "N", "vectors", "tokens", "epochs", "FLOPs", "memory", "time each"):
        table.add_column(name, justify="right", no_wrap=True)
    for rows in [[row] for row in trials] if every_trial else _grouped(trials):
        table.add_row(*_cells(rows))
    console.print(table)
    console.print(_total(run, trials, jobs), highlight=False, soft_wrap=True)


def _grouped(trials: Sequence[Row]) -> list[list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in trials:
        groups.setdefault((row["stage"], row["rung"], row["arm"], row["n_tokens"]), []).append(row)
    return list(groups.values())


def _cells(rows: Sequence[Row]) -> tuple[str, ...]:
    first = rows[0]
    done = sum(row["state"] in ("completed", "diverged") for row in rows)
    return (
        first["stage"],
        first["rung"],
        first["arm"],
        str(len(rows)),
        str(done),
        f"{first['n_params']:,}",
        f"{first['n_params_scale_vectors']:,}",
        f"{first['n_tokens']:,}",
        f"{first['epochs']:.2f}",
        f"{first['flops']:.2g}",
        f"{first['memory_bytes'] / 1e6:,.0f} MB",
        duration(first["seconds"]),
    )


def _total(run: "SweepRun", trials: Sequence[Row], jobs: int) -> str:
    left = [row for row in trials if row["state"] not in ("completed", "diverged")]
    flops, seconds = sum(row["flops"] for row in left), sum(row["seconds"] for row in left)
    megabytes = sum(row["disk_bytes"] for row in trials) / 1e6
    most = max((row["epochs"] for row in trials), default=0.0)
    lines = [
        f"{len(trials)} trials, {len(trials) - len(left)} of them done; {flops:.3g} FLOPs and about "
        f"{duration(seconds / jobs)} left with {jobs} at a time (an estimate; a run corrects it)",
        f"disk: {megabytes:,.1f} MB; corpus {run.corpus.fingerprint[:12]}: "
        f"{run.corpus_facts.training_tokens:,} training tokens, at most {most:.2f} epochs",
    ]
    if most > 1:
        lines.append("warning: some trials see text more than once; their losses are not those of fresh text")
    if run.sweep.tune:
        lines.append(
            f"tuning may extend its grid by {run.sweep.tune.extend} steps; comparison follows its choices"
        )
    return "\n".join(lines)
