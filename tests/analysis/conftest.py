from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from recorded_sweep import choice_of

RUNGS = {"25k": 25_088, "55k": 55_296, "83k": 82_944, "150k": 150_528}


def sweep(
    effects: dict[str, float] | None = None,
    seeds: tuple[int, ...] = (0, 1),
    noise: float = 0.004,
    rungs: dict[str, int] = RUNGS,
    random_seed: int = 0,
) -> pd.DataFrame:
    """Tidy rows on L = 3.9 (C / 6e10)^-0.09 plus each arm's effect; ``noise`` is the sd of a pair."""
    rng = np.random.default_rng(random_seed)
    rows = []
    for rung, n_params in rungs.items():
        n_tokens = 16 * n_params
        base = 3.9 * (6 * n_params * n_tokens / 6e10) ** -0.09
        shared = {seed: rng.normal(0, 3 * noise) for seed in seeds}
        for arm, effect in (effects or {"baseline": 0.0, "unified": -0.03}).items():
            for seed in seeds:
                loss = base + effect + shared[seed] + rng.normal(0, noise / np.sqrt(2))
                row = {"arm": arm, "rung": rung, "seed": seed, "n_params": n_params, "n_tokens": n_tokens}
                rows.append({**row, "loss": loss, "status": "completed", "lr_status": "tuned"})
    return pd.DataFrame(rows)


@pytest.fixture(name="sweep", scope="session")
def sweep_fixture() -> Callable[..., pd.DataFrame]:
    return sweep


def diverge(table: pd.DataFrame, arm: str, rung: str, seed: int) -> pd.DataFrame:
    """``table`` with one trial diverged."""
    table = table.copy()
    item = (table["arm"] == arm) & (table["rung"] == rung) & (table["seed"] == seed)
    table.loc[item, "status"] = "diverged"
    table.loc[item, "loss"] = np.nan
    return table


@pytest.fixture(name="diverge", scope="session")
def diverge_fixture() -> Callable[..., pd.DataFrame]:
    return diverge


@pytest.fixture(name="choice", scope="session")
def choice_fixture() -> Callable[..., dict[str, object]]:
    return choice_of
