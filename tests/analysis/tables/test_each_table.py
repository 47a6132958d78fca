"""The tables of parts, main effects, costs and laws: what each shows and when it cannot."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from tests.shown_tables import column, records, shown

from comparisons import compared, only
from scalevec import analysis
from scalevec.analysis import DataError
from scalevec.analysis.tables import strategies
from scalevec.model.strategies import PRESETS


def test_ablation_marks_what_each_arm_has_and_tests_the_family(source):
    rows = source()
    table_shown = shown(rows, "ablation")
    assert column(table_shown, "arm")[0] == "baseline"
    marks = {row[0]: dict(zip(table_shown.columns, row, strict=True)) for row in table_shown.rows}
    of_unified = {name: marks["unified"][name] for name in ("HG", "AP", "DP", "DNP", "OR", "ER", "decay")}
    assert {name for name, mark in of_unified.items() if mark == "✓"} == {"HG", "DNP", "OR"}
    assert of_unified["decay"] == "input"
    assert marks["none"]["vectors"] == marks["none"]["decay"] == ""
    assert marks["product"]["OR"] == "product"
    got = {record["arm"]: record for record in records(table_shown) if record["cell"] == "all"}
    for arm, comparison in compared(rows).items():
        difference = comparison.loss_difference
        assert float(got[arm]["difference"]) == difference.mean
        assert float(got[arm]["p_holm"]) == difference.p_holm


@pytest.mark.parametrize(
    ("preset", "marked"),
    [
        ("ap", {"vectors": "✓", "AP": "✓", "decay": "all"}),
        ("dp", {"vectors": "✓", "DP": "✓", "decay": "all"}),
        ("er", {"vectors": "✓", "ER": "✓", "decay": "all"}),
        ("norms-only", {"DNP": "normalized"}),
        ("unified-dp", {"vectors": "✓", "HG": "✓", "DP": "✓", "OR": "✓", "decay": "input"}),
    ],
)
def test_a_preset_is_marked_with_the_parts_that_it_has(preset, marked):
    of = PRESETS[preset]
    values = (of.branches, of.placement, of.reparameterization, of.weight_decay)
    marks = strategies.marks(dict(zip(strategies.FIELDS, values, strict=True)))
    actual = {name: text for name, text in zip((*strategies.CHOICES, "decay"), marks, strict=True) if text}
    assert actual == marked


def test_ablation_of_a_plain_table_has_no_check_marks(sweep):
    table_shown = shown(sweep(), "ablation")
    assert table_shown.columns == ("arm", "25k", "55k", "83k", "150k", "all", "Holm p", "pairs")


PLANTED = {"heterogeneous": -0.02, "dual": -0.005, "dual-normalized": 0.03, "or": -0.01}
PARTS = (("all", "heterogeneous"), ("input", "dual", "dual-normalized"), ("none", "or"))


def factorial(sweep, noise: float = 2e-3, **options) -> pd.DataFrame:
    """Twelve arms with the parts' planted effects, and one that is in no factorial."""
    fields = {f"a{number}": values for number, values in enumerate(product(*PARTS))}
    effects = {arm: sum(PLANTED.get(part, 0.0) for part in parts) for arm, parts in fields.items()}
    rows = sweep(effects | {"single": 0.5}, noise=noise, seeds=(0, 1, 2), **options)
    of_arm = rows["arm"].map(fields | {"single": ("none", "input", "none")})
    names = ("vector_branches", "vector_placement", "vector_reparameterization")
    for position, name in enumerate(names):
        rows[name] = of_arm.str[position]
    # As a sweep records it: without vectors behind the maps, all that decay are those before them.
    decay = rows["vector_placement"].map({"input": "all"}).fillna("input")
    return rows.assign(vector_decay=decay, stream=rows["rung"] + rows["seed"].astype(str))


def effects_of(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    return {record["level"]: record for record in records(shown(table, "factorial", reference="a0"))}


def test_each_planted_effect_lies_in_its_interval(sweep):
    seen = effects_of(factorial(sweep))
    assert list(seen) == ["heterogeneous", "dual", "dual-normalized", "or"]
    for level, planted in PLANTED.items():
        record = seen[level]
        assert float(record["effect_low"]) < planted < float(record["effect_high"])
        assert int(record["values"]) == 12
    assert float(seen["dual-normalized"]["p_holm"]) < 1e-6


def test_an_effect_is_the_difference_of_means_over_the_other_parts(sweep):
    table = factorial(sweep)
    arms = table[table["arm"] != "single"].groupby("vector_branches")["loss"].mean()
    effect = float(effects_of(table)["heterogeneous"]["effect"])
    assert effect == pytest.approx(arms["heterogeneous"] - arms["all"])


def test_a_seed_that_one_arm_lacks_gives_no_value(sweep):
    table = factorial(sweep)
    lacking = table[~((table["arm"] == "a7") & (table["rung"] == "55k") & (table["seed"] == 1))]
    assert {record["values"] for record in effects_of(lacking).values()} == {"11"}


def test_arms_without_every_combination_of_two_factors_are_refused(sweep):
    table = factorial(sweep)
    with pytest.raises(DataError, match="no arms have every combination of two factors"):
        shown(table[table["arm"].isin(["a0", "a1", "a2"])], "factorial", reference="a0")


def test_overhead_is_a_median_of_paired_ratios_with_their_range(source):
    table_shown = shown(source({"baseline": 0.0, "unified": -0.03}), "overhead")
    first = [dict(zip(table_shown.columns, row, strict=True)) for row in table_shown.rows[:2]]
    assert first[0]["step time"] == "100 ms"
    assert first[1]["step time"] == "1.10× [1.10, 1.10]"
    assert first[0]["peak memory"] == "1024 MiB"
    assert (first[1]["scale vectors"], first[1]["share"]) == ("160", "0.00613")


def test_overhead_shows_allocated_memory_where_it_is_known_and_not_the_resident_size(source):
    rows = source({"baseline": 0.0, "unified": -0.03})
    rows["allocated_bytes"] = np.where(rows["arm"] == "unified", 3 * 2**20, 2 * 2**20)
    table_shown = shown(rows, "overhead")
    first = [dict(zip(table_shown.columns, row, strict=True)) for row in table_shown.rows[:2]]
    assert [row["allocated memory"] for row in first] == ["2 MiB", "1.50× [1.50, 1.50]"]
    assert "peak memory" not in table_shown.columns


def test_overhead_compares_no_trials_of_different_devices(source):
    rows = source({"baseline": 0.0, "unified": -0.03})
    rows.loc[(rows["arm"] == "unified") & (rows["rung"] == "25k"), "device"] = "cpu"
    table_shown = shown(rows, "overhead")
    assert column(table_shown, "rung")[:3] == ["25k", "55k", "55k"]
    assert any("Left out: 2 pairs" in note for note in table_shown.notes)


def test_scaling_is_what_fit_and_compare_say(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, random_seed=1)
    got = {record["arm"]: record for record in records(shown(rows, "scaling"))}
    for fit in analysis.fit(rows, bootstrap=20).values():
        assert float(got[fit.arm]["alpha"]) == fit.parameters["alpha"]
        assert float(got[fit.arm]["alpha_low"]) == fit.intervals["alpha"][0]
        assert float(got[fit.arm]["hold_out_relative_error"]) == fit.hold_out["relative_error"]
    compared = only(rows, bootstrap=20)
    assert float(got["unified"]["multiplier"]) == compared.compute_multipliers[0].estimate
    assert got["baseline"]["multiplier"] == ""


def test_scaling_takes_any_law(source):
    table_shown = shown(source({"baseline": 0.0, "unified": -0.03}), "scaling", law="power-floor", x="N")
    assert "E" in table_shown.columns
    assert table_shown.notes[0].startswith("Law: L = E + A/N^alpha (")


def test_where_a_loss_is_only_a_bound_there_is_no_multiplier_as_in_a_comparison(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, random_seed=1).assign(lr_status="tuned")
    rows.loc[rows["n_params"] == rows["n_params"].max(), "lr_status"] = "censored"
    [row] = [record for record in records(shown(rows, "scaling")) if record["arm"] == "unified"]
    assert row["multiplier"] == ""
    assert only(rows, bootstrap=20).withheld == "a loss of baseline and unified is only a bound"
