from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis import compare
from scalevec.analysis.data import read
from scalevec.analysis.data.doubts import unit_warnings
from scalevec.analysis.data.tidy import checked, completed_rows, read_table, variable_of
from scalevec.analysis.data.values import seeds_of, typed
from scalevec.analysis.data.where import select
from scalevec.analysis.errors import DataError
from scalevec.analysis.options import AnalysisOptions
from support import run_python, succeeded


def small() -> pd.DataFrame:
    return pd.DataFrame({"n_params": [1e6, 2e6], "n_tokens": [2e7, 4e7], "loss": [3.0, 2.8]})


@pytest.mark.parametrize(
    ("column", "value"),
    [("n_params", np.nan), ("n_params", np.inf), ("n_tokens", 0.0), ("n_tokens", -1.0), ("loss", -1.0)],
)
def test_a_value_that_is_no_positive_number_is_named_with_its_row(column: str, value: float):
    table = small()
    table.loc[1, column] = value
    shown = f"{value:g}".replace("nan", "blank or nan")
    with pytest.raises(DataError, match=f"column '{column}', row 2: {shown}; allowed: finite numbers above"):
        checked(table)


@pytest.mark.parametrize("value", [None, np.nan, np.inf, -np.inf, "NaN", "-nan(ind)", "Infinity", "1.#INF"])
def test_a_completed_trial_without_a_finite_loss_has_diverged(value: object):
    table = checked(small().assign(loss=[3.0, value]))
    assert table["status"].tolist() == ["completed", "diverged"]


@pytest.mark.parametrize(
    ("column", "value", "remedy"),
    [
        ("loss", 65504.0, "where a run diverged? Then write nan; or leave such rows out: --where 'loss < 65"),
        ("loss", 3.4028235e38, "--where 'loss < 3.40282e+38'"),
        ("loss", 999.0, "where a run diverged? Then write nan; or leave such rows out: --where 'loss < 999'"),
        ("loss", 1e6, "--where 'loss < 1e+06'"),
        ("loss", -1.0, "--where 'loss > 0'"),
        ("loss", np.finfo(float).max, "--where 'loss < 1.79769e"),
        ("n_tokens", 0.0, "Then give the number; or leave such rows out: --where 'n_tokens > 0'"),
    ],
)
def test_what_stands_for_a_number_that_is_not_known_is_asked_about_by_column(column, value, remedy):
    table = pd.concat([small(), small().assign(**{column: value})], ignore_index=True)
    with pytest.raises(DataError, match=rf"column '{column}', rows 3, 4: ") as refused:
        checked(table)
    assert remedy in str(refused.value)


def test_a_loss_of_nines_beside_its_like_is_one():
    assert len(checked(small().assign(loss=[99.0, 60.0]))) == 2


def test_rows_are_counted_as_in_the_file_from_which_some_were_chosen():
    table = pd.concat([small(), small().assign(loss=-1.0)], ignore_index=True)
    with pytest.raises(DataError, match="column 'loss', row 4: -1"):
        checked(select(table, "n_params > 1.5e6"))


def test_a_long_seed_keeps_its_digits_beside_a_blank_one(tmp_path):
    (tmp_path / "runs.csv").write_text(
        "arm,seed,loss\na,1152921504606846977,3\na,1152921504606846978,3\nb,,3\n"
    )
    seeds = seeds_of(typed(read.rows_of_file(tmp_path / "runs.csv"))["seed"])
    assert seeds.dropna().tolist() == [1152921504606846977, 1152921504606846978]


@pytest.mark.parametrize("seeds", [["1", 2.0], [1, 2], ["1.0", "2"], pd.array([1, 2], "Int64")])
def test_a_seed_is_the_same_however_it_is_written(seeds: list[object]):
    assert checked(small().assign(seed=seeds))["seed"].tolist() == [1, 2]


def test_losses_above_what_a_uniform_guess_has_are_asked_to_be_perplexities():
    [warning] = unit_warnings(checked(small().assign(loss=[24.0, 3.1])))
    assert "losses of up to 24 are no nats/token" in warning
    assert "--unit perplexity" in warning


def test_losses_of_equal_runs_that_may_be_of_two_units_are_asked_about():
    loss = [3.1, 3.1 / np.log(2)]
    [warning] = unit_warnings(checked(small().assign(n_params=1e6, n_tokens=2e7, loss=loss)))
    words = "losses at the same N and tokens differ by a factor of up to 1.44: of two units"
    assert warning.startswith(words)


def test_runs_of_which_the_tokens_are_zero_are_compared_by_no_logarithm():
    sizes = np.geomspace(1e5, 1e6, 20)
    table = checked(pd.DataFrame({"n_params": sizes, "n_tokens": 1.0, "loss": 10 * sizes**-0.1}))
    assert "the scatter" not in " ".join(unit_warnings(table.assign(n_tokens=0.0)))


@pytest.mark.parametrize(("scale", "shown"), [(1e-3, "0.02"), (1e6, "2e+07")])
def test_tokens_per_parameter_that_nobody_trains_are_said(scale: float, shown: str):
    table = pd.DataFrame({"n_params": [1e10, 2e10], "n_tokens": [2e11 * scale, 4e11 * scale]})
    [warning] = unit_warnings(table)
    assert warning.startswith(f"{shown} tokens per parameter: is n_params or n_tokens in thousands")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (small().iloc[:0], "no rows"),
        (small().assign(status=["completed", "complet"]), "'complet'; nearest: 'completed'"),
        (small().assign(loss=1e300), r"rows 1, 2: 1e.300; .* above zero, from 1e-100 to 1e\+100"),
    ],
)
def test_a_table_that_is_none_is_refused_with_the_reason(table: pd.DataFrame, message: str):
    with pytest.raises(DataError, match=message):
        checked(table)


def test_tuning_trials_are_counted_and_left_out():
    rows, excluded = completed_rows(checked(small().assign(stage=["tuning", "comparison"])))
    assert rows["loss"].tolist() == [2.8]
    assert excluded == {"tuning": 1}


def test_a_trial_shared_by_two_sweeps_counts_once():
    table = pd.concat([small().assign(trial_id=["a", "b"], sweep=name) for name in ("one", "two")])
    assert len(checked(table)) == 2


def test_checkpoints_of_one_trial_are_all_kept():
    table = pd.concat([small().assign(trial_id=["a", "b"], n_tokens=tokens) for tokens in (1e9, 2e9)])
    assert len(checked(table)) == 4
    assert len(checked(table.assign(n_tokens=1e9, loss=[3.0, 3.1, 2.9, 3.0]))) == 4


def test_conventions_for_n_and_c_change_the_numbers():
    table = small().assign(n_params_embedding=1e5, n_params_total=[1.2e6, 2.2e6], flops_counted=7.0)
    known = {
        ("N", "matrices", "6nd"): [1e6, 2e6],
        ("N", "with-embedding", "6nd"): [1.1e6, 2.1e6],
        ("N", "total", "6nd"): [1.2e6, 2.2e6],
        ("C", "total", "6nd"): [6 * 1.2e6 * 2e7, 6 * 2.2e6 * 4e7],
        ("C", "matrices", "counted"): [7.0, 7.0],
    }
    for (name, of_n, of_c), values in known.items():
        options = AnalysisOptions(n_convention=of_n, c_convention=of_c)
        assert variable_of(table, name, options).tolist() == values


def test_a_convention_that_the_table_cannot_serve_is_refused():
    with pytest.raises(DataError, match=r"no column 'n_params_total'.*n_convention total"):
        variable_of(small(), "N", AnalysisOptions(n_convention="total"))


def test_words_that_stand_for_a_blank_elsewhere_are_names_of_arms(tmp_path: Path):
    path = tmp_path / "points.csv"
    header = "arm,n_params,n_tokens,loss,seed"
    path.write_text(f"{header}\nNone,1e6,2e7,3.0,NA\nbaseline,1e6,2e7,3.1,1\n,1e6,2e7,3.2,2\n")
    table = read_table(path)
    assert table["arm"].fillna("blank").tolist() == ["None", "baseline", "blank"]
    assert table["seed"].isna().tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("points.txt", b"x", "holds no table; allowed: .csv, .tsv"),
        ("points.parquet", b"not parquet", "cannot be read as parquet"),
        ("points.csv", b"", "cannot be read as CSV: it is empty"),
        ("points.csv", b"a,b\n1,2\n1", "row 2: 1 cell under 2 columns: a cut line"),
        ("points.csv", b"Runs of May\na,b\n1,2", "one named column, 'Runs of May': separate columns"),
        ("points.csv", b"Runs of May,,\na,b,c\n1,2,3", "delete what stands above their names"),
        ("points.csv.gz", b"\x1f\x8b broken", "cannot be read: Compressed file"),
    ],
)
def test_an_unreadable_file_gets_one_message(tmp_path: Path, name: str, content: bytes, message: str):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_table(path)


def test_what_a_file_brings_beside_its_columns_is_left(tmp_path: Path):
    """Such as predictions that it says were kept before its results."""
    table = small()
    table.attrs = {"predictions": [{"kept": "2025-01-01"}]}
    table.to_parquet(tmp_path / "points.parquet")
    assert pd.read_parquet(tmp_path / "points.parquet").attrs
    assert read_table(tmp_path / "points.parquet").attrs == {}


def test_a_column_that_was_the_index_of_a_table_is_a_column(tmp_path: Path):
    table = small().assign(trial_id=["a", "b"])
    table.set_index("trial_id").to_parquet(tmp_path / "points.parquet")
    assert list(read_table(tmp_path / "points.parquet")["trial_id"]) == ["a", "b"]


def test_a_small_file_of_too_many_rows_is_not_read(tmp_path: Path, monkeypatch):
    small().to_parquet(tmp_path / "points.parquet")
    monkeypatch.setattr(read, "MOST_CELLS", 5)
    with pytest.raises(DataError, match=r"2 rows of 3 columns; allowed: .* and 5 cells"):
        read_table(tmp_path / "points.parquet")


def test_importing_analysis_loads_nothing_heavy():
    code = (
        "import sys, scalevec.analysis;"
        "heavy = {'scipy', 'matplotlib', 'jinja2', 'pandas'} & set(sys.modules);"
        "from scalevec.analysis import fit, compare, comparison_text, table;"
        "late = {'scipy', 'matplotlib', 'jinja2', 'torch'} & set(sys.modules);"
        "print(sorted(heavy), sorted(late))"
    )
    assert succeeded(run_python(code)).stdout == "[] []\n"


def test_sizes_that_a_sweep_of_ours_gives_are_plain_counts():
    table = pd.DataFrame({"n_params": [2048, 8192], "n_tokens": [40_960, 163_840]})
    assert unit_warnings(table)
    assert unit_warnings(table.assign(stream="ab", trial_id="cd")) == []


def test_sizes_and_tokens_in_millions_are_questioned_up_to_large_models():
    table = pd.DataFrame({"n_params": [70, 160, 410, 1400, 6900], "n_tokens": 3e5})
    assert [warning.split(" is ")[0] for warning in unit_warnings(table)] == ["the largest n_params"]
    assert len(unit_warnings(table.assign(n_tokens=20 * table["n_params"] / 2))) == 2


def test_the_nullable_columns_of_a_sweep_are_read():
    table = small().astype({"n_params": "Int64", "n_tokens": "Int64"})
    table = table.assign(seed=pd.array([0, 1], "Int64"), status=pd.array(["completed", "pending"], "str"))
    table.loc[1, ["n_params", "n_tokens", "loss"]] = None
    rows, excluded = completed_rows(checked(table))
    assert rows["n_params"].tolist() == [1e6]
    assert excluded == {"pending": 1}


@pytest.mark.parametrize("blown", [1, 2])
def test_the_few_rows_that_alone_make_the_scatter_wide_are_named(blown):
    rng, n = np.random.default_rng(0), np.repeat(np.geomspace(2e7, 5e8, 4).round(), 6)
    arms, seeds = np.tile(["baseline", "hot"], 12), np.tile([0, 0, 1, 1, 2, 2], 4)
    loss = 1.7 + 400 / n**0.3 + rng.normal(0, 0.003, len(n))
    loss[[13, 21][:blown]] = 9.7
    table = pd.DataFrame({"arm": arms, "n_params": n, "n_tokens": 20 * n, "seed": seeds, "loss": loss})
    (told,) = compare(table, "baseline", bootstrap=0).only.warnings
    assert told.startswith("one row alone makes" if blown == 1 else "2 rows make")
    assert told.count("loss 9.7 (arm hot") == blown
    assert "--where 'loss != 9.7'" in told
