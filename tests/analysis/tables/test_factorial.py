"""Main effects are recovered with their intervals, and only where the arms have every combination."""

from itertools import product

import pandas as pd
import pytest
from tests.shown_tables import records, shown

from scalevec.analysis import DataError

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
