"""Which rows are runs of their own, which belong to one, and which repeat each other."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis import DataError, compare, fit, read_table

ALPHA = 0.3


def ladder(seeds: int = 2, noise: float = 0.003) -> pd.DataFrame:
    """Six sizes at twenty tokens per parameter, some seeds each."""
    sizes = np.repeat(np.geomspace(1e7, 1e9, 6).round(), seeds)
    table = pd.DataFrame({"n_params": sizes, "n_tokens": 20 * sizes, "seed": np.tile(range(seeds), 6)})
    noise_of = np.random.default_rng(0).normal(0, noise, len(table))
    return table.assign(loss=3.0 * (sizes / 1e8) ** -ALPHA * np.exp(noise_of))


def curves(n_runs: int = 5, n_points: int = 35) -> pd.DataFrame:
    """Checkpoints along runs, of which no column gives the run."""
    sizes = np.repeat(np.geomspace(1e8, 1e9, n_runs).round(), n_points)
    tokens = np.tile(np.linspace(1e9, 35e9, n_points), n_runs)
    noise = np.random.default_rng(0).normal(0, 0.002, len(sizes))
    loss = (1.7 + 400 * sizes**-0.34 + 410 * tokens**-0.28) * np.exp(noise)
    return pd.DataFrame({"n_params": sizes, "n_tokens": tokens, "loss": loss})


def only(table: pd.DataFrame, **options):
    (fitted,) = fit(table, **{"hold_out": "none", "bootstrap": 50, **options}).values()
    return fitted


@pytest.mark.parametrize("column", ["run", "cluster", "trial_id"])
def test_blanks_in_the_column_of_runs_are_refused_with_their_rows(column: str):
    table = ladder().assign(**{column: [f"r{i // 2}" for i in range(12)]})
    table.loc[[2, 7], column] = None
    with pytest.raises(DataError, match=rf"column '{column}' is blank in 2 rows \(3, 8\)"):
        fit(table, cluster="cluster" if column == "trial_id" else column)


def test_rows_that_are_not_used_may_have_no_run():
    table = ladder().assign(cluster=[f"r{i}" for i in range(12)], status="completed")
    table.loc[0, ["cluster", "loss"]] = None
    table.loc[0, "status"] = "failed"
    assert only(table).n_clusters == 11


def test_rows_of_equal_size_and_tokens_without_a_seed_are_no_seed_noise():
    table = ladder(3).drop(columns="seed").assign(unique_tokens=np.tile([1e9, 2e9, 4e9], 6))
    fitted = only(table)
    assert fitted.intervals == {}
    assert "differ in unique_tokens" in fitted.interval_note
    assert "a column seed" in fitted.interval_note
    assert only(table.assign(seed=np.tile(range(3), 6))).interval_method == "seed-t"


def test_rows_without_a_seed_that_differ_in_nothing_have_the_noise_of_the_residuals():
    fitted = only(ladder(3).drop(columns="seed"))
    assert fitted.interval_method == "residual-t"
    assert any("not taken as repeated seeds" in warning for warning in fitted.warnings)


def test_seeds_that_stand_twice_at_one_point_tell_nothing_apart():
    """By N alone, several token counts of a seed share a point."""
    table = pd.concat([ladder(), ladder().assign(n_tokens=lambda t: 2 * t.n_tokens)])
    fitted = only(table.assign(run=[f"r{number}" for number in range(24)]), x="N")
    assert fitted.intervals == {}
    assert "differ in n_tokens" in fitted.interval_note


@pytest.mark.parametrize("seed", [0.5, np.inf, 1e30, [1, 2], True + 2**63])
def test_a_seed_that_is_none_is_refused(seed: object):
    table = ladder().astype({"seed": object})
    table.at[1, "seed"] = seed
    with pytest.raises(DataError, match=r"column 'seed', row 2: .*; allowed: whole numbers"):
        fit(table)


def test_seeds_may_be_names():
    table = ladder().assign(seed=np.tile(["a", "b"], 6))
    assert only(table).interval_method == "seed-t"


def test_epochs_above_one_are_warned_of():
    warnings = only(ladder().assign(epochs=[1.0] * 10 + [4.0, 4.0])).warnings
    assert any("2 of 12 trials saw data more than once (up to 4 epochs)" in text for text in warnings)


def test_the_column_that_names_the_runs_of_checkpoints_is_suggested():
    table = curves(12).assign(model=lambda t: "m" + t.n_params.astype(str))
    assert "--cluster model" in only(table, law="chinchilla").interval_note
    assert only(table, law="chinchilla", cluster="model").interval_method == "cluster-t"


ROWS = {
    "nothing": {},
    "names of rows beside those of runs": {
        "uuid": lambda t: [f"{number * 7919 % 1009:04x}" for number in range(len(t))],
        "runName": lambda t: t.n_params.rank(method="dense").map("run {:g}".format),
    },
    "numbers of rows alone": {"run_id": lambda t: range(len(t))},
}


@pytest.mark.parametrize("columns", ROWS.values(), ids=ROWS)
def test_rows_along_one_run_are_no_runs_whatever_names_them(columns):
    fitted = only(curves().assign(**columns), law="chinchilla")
    assert (fitted.n_clusters, fitted.intervals) == (5, {})
    assert "look like checkpoints of one run (35 rows per run, 5 runs)" in fitted.interval_note
    assert "--cluster row" in fitted.interval_note


@pytest.mark.parametrize(
    "columns",
    [{"cluster": lambda t: range(len(t))}, {"retrieval_run": lambda t: [f"run {i}" for i in range(len(t))]}],
)
def test_a_planned_grid_of_budgets_whose_rows_have_names_keeps_its_interval(columns):
    assert only(curves(6, 6).assign(**columns), law="chinchilla").interval_method == "residual-t"


def test_sizes_on_lines_of_equal_flops_are_runs_of_their_own():
    sizes, flops = (v.ravel() for v in np.meshgrid(np.geomspace(1e8, 1e9, 6).round(), [1e19, 1e20, 1e21]))
    table = pd.DataFrame({"n_params": sizes, "n_tokens": flops / 6 / sizes, "flops": flops})
    noise = np.exp(np.random.default_rng(0).normal(0, 0.003, len(table)))
    table["loss"] = (1.7 + 400 * table.n_params**-0.34 + 410 * table.n_tokens**-0.28) * noise
    assert only(table, law="chinchilla").interval_method == "residual-t"


@pytest.mark.parametrize("name", ["checkpoint", "ckpt_id", "hash", "index"])
def test_what_names_each_row_beside_steps_names_checkpoints(name: str):
    table = pd.concat([curves(12, 4).assign(arm=arm, seed=0) for arm in "ab"], ignore_index=True)
    named = table.assign(step=table.n_tokens / 1e6, **{name: table.index * 2 + 1})
    assert compare(named, reference="a", bootstrap=0).only.pairs == 12
    assert compare(named.rename(columns={name: "name"}), reference="a", bootstrap=0).only.pairs == 48


def test_a_comparison_of_checkpoints_counts_their_runs():
    table = pd.concat([curves(12, 4).assign(arm="a"), curves(12, 4).assign(arm="b")])
    table["loss"] *= 1 + 0.001 * np.random.default_rng(1).normal(size=len(table))
    counted = compare(table, reference="a", bootstrap=0).only
    assert counted.loss_difference.df == 11
    assert any("the last of each run's checkpoints is compared" in fact for fact in counted.facts)
    assert compare(table, reference="a", bootstrap=0, cluster="row").only.loss_difference.df == 47


def test_trials_of_another_tool_name_checkpoints_and_are_counted_anew_in_each_study():
    table = pd.concat(
        [curves(4, 4).assign(arm="a"), curves(4, 4).assign(arm="b", loss=lambda t: t.loss - 0.05)]
    )
    table["trial_id"] = table.groupby(["arm", "n_params"]).ngroup() % 4
    counted = compare(table, reference="a", bootstrap=0).only
    assert counted.loss_difference.mean == pytest.approx(-0.05)
    assert len(counted.by_rung) == 4


def test_runs_that_all_diverged_are_said_to_have():
    table = ladder().assign(arm=["a", "b"] * 6, loss=np.nan, seed=0, status="diverged", steps=range(12))
    assert compare(table, reference="a", bootstrap=0).only.verdict == "invalid"


def test_a_range_under_a_factor_of_three_leaves_its_exponent_free():
    table = curves(6, 6).assign(n_params=lambda t: 1e8 * (t.n_params / 1e8) ** 0.1)
    warnings = only(table, law="chinchilla", cluster="row").warnings
    assert any("N spans a factor of 1.26" in text and "leave A and alpha free" in text for text in warnings)
    assert not any("D spans" in text for text in warnings)


@pytest.mark.parametrize("column", ["arm", "rung", "trial_id"])
def test_lists_in_a_column_that_tells_rows_apart_are_refused(column: str, tmp_path: Path):
    table = curves(6, 4).assign(**{column: [[1, 2]] * 24})
    table.to_parquet(tmp_path / "t.parquet")
    for call in (lambda: fit(table), lambda: fit(read_table(tmp_path / "t.parquet"))):
        with pytest.raises(DataError, match=f"column '{column}' holds lists"):
            call()


@pytest.mark.parametrize("law", ["chinchilla", "chinchilla-shared"])
def test_a_wrong_law_in_two_variables_is_told_by_repeated_seeds(law: str):
    table = pd.concat([curves(6, 4).assign(seed=seed, run_id=seed) for seed in range(3)], ignore_index=True)
    table["run_id"] = range(len(table))
    table["loss"] *= np.exp(0.02 * (np.log(table["n_params"] / 3e8)) ** 2)
    rng = np.random.default_rng(0)
    arms = [table.assign(arm=arm, loss=table.loss * np.exp(rng.normal(0, 5e-4, len(table)))) for arm in "ab"]
    for fitted in fit(pd.concat(arms), law=law, bootstrap=0, hold_out="none").values():
        assert any("lack of fit" in warning for warning in fitted.warnings)


def test_a_comparison_names_the_columns_in_which_rows_without_a_seed_differ():
    table = ladder(3).drop(columns="seed").assign(unique_tokens=np.tile([1e9, 2e9, 4e9], 6))
    with pytest.raises(DataError, match=r"has two rows with .* \(they differ in unique_tokens\): choose one"):
        compare(pd.concat([table.assign(arm=arm) for arm in "ab"]), reference="a")
