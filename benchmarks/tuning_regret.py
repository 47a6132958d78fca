"""What ``tune: larger_rungs: predicted`` saves and what it costs, replayed and simulated.

    python benchmarks/tuning_regret.py RUNS_DIR

Replayed: of every sweep in RUNS_DIR with three tuned rungs, how many tuning trials would have run at the
larger ones, the rate that they would have chosen, and its regret: the validation loss at that rate above the
loss at the rate that the whole grid chose. What was not trained is read off the polynomial in log(rate)
through the kept losses of the arm there. A verdict is looked at again with the regret added to every
comparison trial of the rung. Simulated: grids of five rates, for bowls as wide and as noisy as the kept ones
and optima that fall with N as theirs; there the truth is known.
"""

import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalevec import analysis, sweeps
from scalevec.orchestrator.executors.simulate.planted_law import nominal_corpus
from scalevec.orchestrator.sources.sources import open_source
from scalevec.orchestrator.tuning.choices import Choice, from_json
from scalevec.orchestrator.tuning.larger_rungs import LAW_NEEDS
from scalevec.orchestrator.tuning.tuner import Losses, Tuner
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder, sweep_names
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import Cell
from scalevec.sweeps.sections.schema import Sweep
from scalevec.sweeps.trainers.any_trial import AnyTrial

Place = tuple[Any, ...]
"""Arm, rung, tokens, setting, rate and seed: what tells a tuning trial from others."""
STEP, SETS = 2.0, 500
WIDE = [4e-3 * STEP**step for step in range(5)]
"""Five rates, a factor of two apart."""


def name_of(cell: Cell, trial: AnyTrial) -> Place:
    """Name a tuning trial by what its sweep says of it, whatever its identity."""
    setting = cell.setting["optimizer"], cell.setting["schedule"]
    return cell.arm, cell.rung, trial.tokens, *setting, float(f"{trial.learning_rate:.6g}"), trial.seed


def kept_losses(runs_dir: Path, name: str) -> dict[Place, float]:
    """Validation losses of the tuning trials of a sweep, infinite where they diverged."""
    losses = {}
    for member in SweepFolder.of(runs_dir, name).members() or []:
        result = RunDirectory.of(runs_dir, member["trial_id"]).result()
        if member["stage"] == "tuning" and result is not None:
            of_cell = [member[column] for column in ("arm", "rung", "n_tokens", "optimizer", "schedule")]
            loss = result["loss_validation"]
            at = (*of_cell, float(f"{member['learning_rate']:.6g}"), member["seed"])
            losses[at] = math.inf if loss is None else float(loss)
    return losses


class Replay:
    """Tuning on kept losses; a rate that was not trained has that of the curve through the others."""

    def __init__(self, losses: dict[Place, float]) -> None:
        self.losses, self.asked = losses, set[Place]()
        self.places: dict[AnyTrial, Place] = {}

    def train(self, trials: Sequence[tuple[Cell, AnyTrial]]) -> Losses:
        """Answer as training would."""
        for cell, trial in trials:
            at = self.places[trial] = name_of(cell, trial)
            self.asked.add(at)
        return lambda trial: self.loss(self.places[trial])

    def loss(self, at: Place) -> float:
        """The kept loss, or that of the curve through those of the same cell and seed."""
        return self.losses[at] if at in self.losses else self.curve(at[:5], at[-2], at[-1])

    def curve(self, cell: Place, rate: float, seed: int | None = None) -> float:
        """The polynomial in log(rate) through the losses of a cell: of one seed, or their mean."""
        losses: defaultdict[float, list[float]] = defaultdict(list)
        for at, loss in self.losses.items():
            if at[:5] == cell and seed in (None, at[-1]) and math.isfinite(loss):
                losses[math.log2(at[-2])].append(loss)
        x = sorted(losses)
        y = [math.fsum(losses[each]) / len(losses[each]) for each in x]
        return float(np.polyval(np.polyfit(x, y, len(x) - 1), math.log2(rate)))


def bowl(choice: Choice) -> float:
    """Curvature of the parabola about the least loss: nats/token per squared factor of two."""
    losses = [math.inf if loss is None else loss for loss in choice.losses]
    first = max(min(int(np.argmin(losses)) - 1, len(losses) - 3), 0)
    return float(np.polyfit(np.log2(choice.grid[first : first + 3]), losses[first : first + 3], 2)[0])


def replayed(runs_dir: Path, name: str, sweep: Sweep) -> tuple[list[dict[str, Any]], Replay, Replay]:
    """A row for each arm and setting at a larger rung: both choices and the regret; and both replays."""
    assert sweep.tune is not None
    cells, losses = expand(sweep, nominal_corpus(sweep)), kept_losses(runs_dir, name)
    whole, fewer = Replay(losses), Replay(losses)
    choices = Tuner(cells, [], sweep.tune.extend).run(whole.train)
    others = Tuner(cells, [], sweep.tune.extend, predict_larger=True).run(fewer.train)
    rows = []
    for cell, choice, other in zip(cells, choices, others, strict=True):
        if other.predicted is not None:
            at = name_of(cell, cell.trial(0))[:5]
            rows.append(
                {
                    **dict(zip(("arm", "rung", "tokens", "optimizer", "schedule"), at, strict=True)),
                    "grid": " ".join(f"{rate:.4f}" for rate in choice.grid),
                    "predicted": " ".join(f"{rate:.4f}" for rate in other.grid),
                    "chosen": choice.chosen,
                    "instead": other.chosen,
                    "regret": whole.curve(at, other.chosen) - whole.curve(at, choice.chosen),
                }
            )
    return rows, whole, fewer


def verdicts(runs_dir: Path, name: str, sweep: Sweep, rows: pd.DataFrame) -> str:
    """Whether a verdict of the sweep changes if its trials had the regret added; in words."""
    table = open_source(name, runs_dir).rows
    table = table[table["stage"] == "comparison"]
    moved = table.copy()
    for row in rows.to_dict("records"):
        here = (moved["arm"] == row["arm"]) & (moved["rung"] == row["rung"])
        moved.loc[here & (moved["n_tokens"] == row["tokens"]), "loss"] += row["regret"]
    before, after = (
        {arm: result.verdict for arm, result in analysis.compare(t, sweep.reference).items()}
        for t in (table, moved)
    )
    return "no verdict changes" if before == after else f"verdicts change: {before} -> {after}"


def simulated(curvature: float, noise: float, drift: float, n_seeds: int) -> dict[str, float]:
    """Five rates at four rungs, two arms: trials at the larger two and mean regrets against the truth.

    ``curvature`` is nats/token per squared factor of two from the optimum, ``noise`` the sd of one trial's
    validation loss about its bowl; the optimum falls as N to the power of minus ``drift``.
    """
    text = f"""
name: simulated
corpus: {{source: python-stdlib, tokenizer: {{bpe: 1024}}, sequence_length: 128}}
ladder: [tiny-25k, tiny-55k, tiny-83k, tiny-150k]
arms: {{baseline: {{scale_vectors: baseline}}, none: {{scale_vectors: none}}}}
tune: {{learning_rate: {WIDE}, seeds: {list(range(100, 100 + n_seeds))}}}
seeds: [0]
"""
    sweep = sweeps.loads(text)
    cells = expand(sweep, nominal_corpus(sweep))
    rng = np.random.default_rng(0)
    smallest = min(cell.n_params for cell in cells)
    sums: defaultdict[str, float] = defaultdict(float)
    for _ in range(SETS):
        levels = {arm: math.log2(2e-2) + rng.uniform(-0.5, 0.5) for arm in sweep.arms}
        noises: dict[AnyTrial, float] = {}
        cell_of: dict[AnyTrial, Cell] = {}

        def off(cell: Cell, rate: float) -> float:
            best = levels[cell.arm] - drift * math.log2(cell.n_params / smallest)  # noqa: B023
            return curvature * (math.log2(rate) - best) ** 2

        def train(trials: Any) -> Any:
            for cell, trial in trials:
                noises.setdefault(trial, rng.normal(0, noise))  # noqa: B023
                cell_of[trial] = cell  # noqa: B023
            return lambda trial: off(cell_of[trial], trial.learning_rate) + noises[trial]  # noqa: B023

        for way, predict in (("whole", False), ("fewer", True)):
            choices = Tuner(cells, [], 2, predict_larger=predict).run(train)
            for cell, choice in zip(cells, choices, strict=True):
                if cell.rung in ("tiny-83k", "tiny-150k"):
                    sums[f"trials, {way}"] += len(choice.grid) * n_seeds
                    sums[f"regret, {way}"] += off(cell, choice.chosen) / 4
    return {what: total / SETS for what, total in sums.items()}


def kept_bowls(runs_dir: Path) -> tuple[float, float, float]:
    """Of all kept tuning: median curvature and noise of a trial, and how fast the optimum falls with N."""
    curvatures, variances, slopes = [], [], []
    for name in sweep_names(runs_dir):
        choices = [choice for choice in from_json(SweepFolder.of(runs_dir, name).tuning()) if choice.grid]
        by_seed: defaultdict[Place, list[float]] = defaultdict(list)
        for at, loss in kept_losses(runs_dir, name).items():
            by_seed[at[:-1]].append(loss)
        variances += [float(np.var(of, ddof=1)) for of in by_seed.values() if len(of) > 1]
        curvatures += [bowl(choice) for choice in choices if choice.vertex]
        slopes += [
            math.log(small.chosen / large.chosen) / math.log(large.n_params / small.n_params)
            for small, large in itertools.permutations(choices, 2)
            if (small.arm, small.setting) == (large.arm, large.setting) and small.n_params < large.n_params
        ]
    return float(np.median(curvatures)), math.sqrt(float(np.median(variances))), float(np.median(slopes))


def main() -> None:
    """Print both tables."""
    runs_dir = Path(sys.argv[1])
    for name in sweep_names(runs_dir):
        sweep = sweeps.load(SweepFolder.of(runs_dir, name).path / "sweep.yaml")
        if sweep.tune is None or len(sweep.tune.rungs or sweep.ladder) <= LAW_NEEDS:
            continue
        rows, whole, fewer = replayed(runs_dir, name, sweep)
        if rows:
            table = pd.DataFrame(rows)
            print(f"{name}\n{table.to_string(index=False, float_format='{:.5f}'.format)}")
            rungs = set(table["rung"])
            trials = [sum(at[1] in rungs for at in way.asked) for way in (whole, fewer)]
            changed = verdicts(runs_dir, name, sweep, table)
            made_up = len(fewer.asked - fewer.losses.keys())
            print(
                f"{trials[1]} tuning trials at larger rungs instead of {trials[0]} "
                f"({1 - trials[1] / trials[0]:.0%} fewer), {made_up} of them off the kept curves; "
                f"mean regret {table['regret'].mean():+.5f} nats/token; {changed}"
            )
    curvature, noise, drift = kept_bowls(runs_dir)
    print(f"kept: curvature {curvature:.4f}, noise {noise:.4f} nats/token, optimum falls as N^-{drift:.2f}")
    for n_seeds in (1, 2):
        for steep in (0.0, drift, 2 * drift):
            means = simulated(curvature, noise, steep, n_seeds)
            words = ", ".join(f"{what} {value:.5g}" for what, value in means.items())
            print(f"five rates, {n_seeds} seeds, optimum as N^-{steep:.2f}: {words}")


if __name__ == "__main__":
    main()
