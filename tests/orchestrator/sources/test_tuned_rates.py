"""Which imported runs tuned a learning rate, and which are compared."""

import pandas as pd
import pytest

from scalevec import analysis
from scalevec.orchestrator.sources.imports.tuned_rates import staged


def runs(*cells: tuple[int, float, float], arm: str = "a", size: float = 1e6) -> pd.DataFrame:
    """Runs of one arm and cell as (seed, rate, loss)."""
    rows = pd.DataFrame(cells, columns=["seed", "learning_rate", "loss"])
    return rows.assign(arm=arm, n_params=size, n_tokens=20 * size, status="completed")


GRID = ((7, 0.01, 3.1), (7, 0.02, 3.0), (7, 0.04, 3.2))


def test_a_seed_of_several_rates_tuned_and_seeds_of_one_rate_are_compared():
    rows, [grid], _ = staged(runs(*GRID, (0, 0.02, 3.01), (1, 0.02, 3.02)))
    assert rows["stage"].tolist() == ["tuning"] * 3 + ["comparison"] * 2
    assert rows["lr_status"].tolist()[3:] == ["tuned"] * 2
    assert (grid.grid, grid.losses, grid.chosen, grid.seeds) == (
        (0.01, 0.02, 0.04),
        (3.1, 3.0, 3.2),
        0.02,
        (7,),
    )


def test_where_every_seed_has_every_rate_the_runs_at_the_best_are_compared():
    other = ((8, 0.01, 3.15), (8, 0.02, 3.1), (8, 0.04, 3.4))
    rows, [grid], _ = staged(runs(*GRID, *other))
    assert grid.losses == pytest.approx((3.125, 3.05, 3.3))
    assert rows.loc[rows["stage"] == "comparison", "learning_rate"].tolist() == [0.02, 0.02]


def test_a_best_rate_at_the_edge_is_a_bound_and_a_diverged_one_is_no_loss():
    rows = runs((7, 0.01, 3.0), (7, 0.02, 3.1), (7, 0.04, float("nan")))
    rows["status"] = ["completed", "completed", "diverged"]
    _, [grid], _ = staged(rows)
    assert (grid.status, grid.losses) == ("censored", (3.0, 3.1, None))


@pytest.mark.parametrize("other", [(1, 0.02, 3.0), (0, float("inf"), 3.0), (0, 0.0, 3.0)])
def test_one_rate_a_seed_is_no_grid(other):
    rows, grids, _ = staged(runs((0, 0.01, 3.1), other))
    assert grids == []
    assert "stage" not in rows


def test_several_runs_of_one_seed_and_rate_are_no_grid_and_that_is_said():
    _, grids, notes = staged(runs(*GRID, (7, 0.02, 3.3)))
    assert grids == []
    assert "several runs of one seed and learning rate" in notes[0]


def test_a_comparison_of_runs_that_chose_their_rate_says_so():
    cells = [(seed, rate, 3.0 + 50 * abs(rate - 0.02)) for seed in (0, 1) for rate in (0.01, 0.02, 0.04)]
    parts = [runs(*cells, arm=arm, size=size) for arm in ("a", "b") for size in (1e6, 2e6, 4e6)]
    rows = pd.concat(parts, ignore_index=True)
    rows["loss"] += 0.01 * (rows["arm"] == "b") + 1e-3 * rows.index % 7 - rows["n_params"] * 1e-8
    comparison = analysis.compare(staged(rows)[0], reference="a", bootstrap=20).only
    assert any("were chosen on seeds that are compared" in warning for warning in comparison.warnings)


def test_a_rate_that_is_compared_beside_the_optimum_is_a_bound():
    cells = ((7, 0.001, 3.1), (7, 0.002, 3.0), (7, 0.004, 3.05), (7, 0.008, 3.2))
    _, [grid], _ = staged(runs(*cells, (0, 0.008, 3.19), (1, 0.008, 3.21)))
    assert (grid.chosen, grid.status) == (0.008, "censored")
    _, [between], _ = staged(runs(*cells, (0, 0.003, 2.99), (1, 0.003, 3.0)))
    assert (between.chosen, between.status) == (0.003, "tuned")
