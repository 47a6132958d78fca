from functools import partial

import numpy as np
import pandas as pd
import pytest

import comparisons

only = partial(comparisons.only, bootstrap=200)


def planted(
    multiplier: float, noise: float, seeds: int, random_seed: int = 0, n_rungs: int = 5
) -> pd.DataFrame:
    """Arms on one exponent, of which the arm needs ``1 / multiplier`` of the reference's compute."""
    rng = np.random.default_rng(random_seed)
    rows = []
    for n_params in np.geomspace(3e4, 3e5, n_rungs).round():
        compute = 96 * n_params**2
        for seed in range(seeds):
            shared = rng.normal(0, 2 * noise)
            for arm, times in (("baseline", 1.0), ("unified", multiplier)):
                log_loss = 3.9 - 0.09 * np.log(times * compute) + shared + rng.normal(0, noise)
                row = {"arm": arm, "seed": seed, "n_params": n_params, "n_tokens": 16 * n_params}
                rows.append({**row, "loss": np.exp(log_loss)})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("planted_one", "extrapolated"), [(1.25, True), (0.8, False)])
def test_a_planted_multiplier_is_recovered_and_extrapolated_beyond_the_reference(planted_one, extrapolated):
    comparison = only(planted(planted_one, 0.0, 1))
    (largest,) = comparison.compute_multipliers
    assert largest.estimate == pytest.approx(planted_one, rel=1e-6)
    assert largest.extrapolated is extrapolated
    assert largest.at_flops == pytest.approx(96 * 3e5**2)


def test_a_loss_that_the_reference_never_reaches_has_no_multiplier():
    table = planted(1.0, 0.0, 1)
    compute = 6 * table["n_params"] * table["n_tokens"]
    floor = np.where(table["arm"] == "baseline", 2.0, 0.5)
    table["loss"] = floor + 0.5 * (compute / 1e12) ** -0.3
    largest = only(table, law="power-floor").compute_multipliers[0]
    assert largest.estimate is None
    assert largest.extrapolated
    assert "never reaches" in largest.note


def test_a_ladder_whose_tokens_per_parameter_change_has_a_multiplier_along_it():
    table = planted(1.25, 0.002, 3)
    growing = table.assign(n_tokens=table["n_tokens"] * (table["n_params"] / table["n_params"].min()) ** 0.3)
    # The loss stays that of the compute: 25 % less of it for unified.
    ratio = (growing["n_tokens"] / table["n_tokens"]).to_numpy()
    largest = only(growing.assign(loss=table["loss"] * ratio**-0.09)).compute_multipliers[0]
    assert largest.interval[0] < 1.25 < largest.interval[1]
    assert largest.note.startswith("along ")


def test_several_budgets_of_each_size_give_no_multiplier():
    table = planted(1.25, 0.002, 2)
    more = table.assign(n_tokens=4 * table["n_tokens"], loss=0.9 * table["loss"])
    comparison = only(pd.concat([table, more]), cluster="row")
    assert comparison.compute_multipliers == ()
    assert "several budgets of one size" in comparison.withheld


def test_a_multiplier_that_grows_with_compute_shows_in_its_trend():
    table = planted(1.25, 0.0005, 3)
    steady = only(table).trend["multiplier_per_decade"]
    assert steady["interval"][0] < 1.0 < steady["interval"][1]
    compute = 6 * table["n_params"] * table["n_tokens"]
    steeper = np.where(table["arm"] == "unified", (compute / 1e12) ** -0.009, 1.0)
    grown = only(table.assign(loss=table["loss"] * steeper)).trend["multiplier_per_decade"]
    # ln L falls by 0.099 instead of 0.09 a unit of ln C: the multiplier is C^0.1.
    assert grown["interval"][0] < 10**0.1 < grown["interval"][1]
    assert grown["interval"][0] > 1.0


def test_clustered_pairs_give_a_multiplier_from_whole_clusters():
    parts = [planted(1.25, 0.002, 2, random_seed, n_rungs=12) for random_seed in range(2)]
    table = pd.concat(parts).assign(seed=lambda t: np.arange(len(t)) // 2)
    shape = table["n_params"].rank(method="dense").astype(int)
    largest = only(table.assign(shape=shape), cluster="shape").compute_multipliers[0]
    assert "12 whole clusters" in largest.note
    assert largest.interval[0] < 1.25 < largest.interval[1]
    few = table["n_params"].rank(method="dense").astype(int) // 3
    assert only(table.assign(shape=few), cluster="shape").compute_multipliers[0].interval is None


def grid(multiplier: float, cross: float = 0.0, random_seed: int = 0) -> pd.DataFrame:
    """Four sizes with four budgets each, and an arm that counts as ``multiplier`` times its compute."""
    rng, rows = np.random.default_rng(random_seed), []
    for n, d in ((n, d) for n in np.geomspace(2e7, 6e8, 4) for d in np.geomspace(4e8, 1.2e10, 4)):
        for seed in range(3):
            shared = rng.normal(0, 0.002)
            for arm, times in (("baseline", 1.0), ("unified", np.sqrt(multiplier))):
                loss = 1.69 + 406.4 / (times * n) ** 0.34 + 410.7 / (times * d) ** 0.28
                loss += cross * (n * d / 1e17) ** -0.2 + shared + rng.normal(0, 0.001)
                name = f"{arm} {n:.3g} {d:.3g} {seed}"
                row = {"trial_id": name, "arm": arm, "seed": seed, "n_params": n, "n_tokens": d, "loss": loss}
                rows.append(row)
    return pd.DataFrame(rows)


def test_budgets_on_no_line_have_a_multiplier_by_a_law_in_n_and_d_and_no_other():
    comparison = only(grid(1.2), law="chinchilla")
    (largest,) = comparison.compute_multipliers
    assert largest.interval[0] < 1.2 < largest.interval[1]
    assert largest.note == "at 20 tokens per parameter"
    assert comparison.with_scale.code == "constant"
    assert "or a law in N and D (--law chinchilla)" in only(grid(1.2), law="power").withheld


def test_a_law_in_n_and_d_that_its_hold_out_refutes_gives_no_multiplier():
    comparison = only(grid(1.2, cross=0.4), law="chinchilla")
    assert comparison.compute_multipliers == ()
    assert "the law is refuted by its hold-out" in comparison.withheld
    assert comparison.with_scale.text.startswith("gain in loss shrinks")


def test_while_a_planned_pair_has_no_result_a_law_in_n_and_d_gives_no_multiplier():
    table = grid(1.2).assign(status="completed")
    table.loc[table.index[-1], ["status", "loss"]] = ["pending", None]
    comparison = only(table, law="chinchilla")
    assert comparison.compute_multipliers == ()
    assert "interim: no interval before every planned pair has a result" in comparison.withheld
