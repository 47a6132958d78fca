"""What moves or levels losses within pairs is a caution: machines, arms whose difference is ignored."""

import pandas as pd
import pytest

from comparisons import compared, only
from scalevec.analysis import comparison_text


def of_arm(table: pd.DataFrame, column: str, reference: str, arm: str | None, **others: str) -> pd.DataFrame:
    """``table`` with a column that has one value for each arm."""
    values = table["arm"].map({"baseline": reference, "unified": arm})
    return table.assign(**others, **{column: values})


def machine_cautions(table: pd.DataFrame) -> list[str]:
    return [text for text in only(table).warnings if "holds that of the machines too" in text]


@pytest.mark.parametrize(
    ("column", "reference", "arm", "words"),
    [
        ("device", "cpu", "cuda", "8 pairs of a CPU trial against a GPU trial: 25k, seed 0"),
        ("cpu_capability", "AVX2", "AVX512", "8 pairs of trials of processors with different capabilities"),
        ("torch_version", "2.9.1", "2.10.0", "8 pairs of trials of two minor versions of torch"),
        ("torch_version", "2.9.1", "2.9.1; 2.10.0", "8 pairs of trials of two minor versions of torch"),
    ],
)
def test_what_moves_a_loss_within_a_pair_is_a_caution(sweep, column, reference, arm, words):
    table = of_arm(sweep(), column, reference, arm)
    (caution,) = machine_cautions(table)
    assert caution.startswith(f"unified: {words}")


@pytest.mark.parametrize(
    ("column", "reference", "arm", "others"),
    [
        ("torch_version", "2.9.1+cpu", "2.9.0", {}),
        ("commit", "a1", "b2", {}),
        ("threads", "4", "8", {}),
        ("cpu_capability", "AVX2", "AVX512", {"device": "cuda"}),
        ("cpu_capability", "AVX2", None, {}),
    ],
    ids=["a patch of torch", "commit", "threads", "the processor beside a GPU", "not recorded"],
)
def test_what_moves_no_more_than_a_last_digit_is_no_caution(sweep, column, reference, arm, others):
    assert machine_cautions(of_arm(sweep(), column, reference, arm, **others)) == []


@pytest.fixture
def ignored() -> pd.DataFrame:
    """Two arms with equal losses at two sizes and two seeds, and two weight decays."""
    rows = [
        {"arm": arm, "weight_decay": decay, "n_params": n, "n_tokens": 20 * n, "seed": seed}
        | {"loss": 3 - n / 1e7 + 0.01 * seed, "wall_s": 1 + decay}
        for arm, decay in (("baseline", 0.1), ("none", 0.0))
        for n in (1e6, 2e6)
        for seed in (0, 1)
    ]
    return pd.DataFrame(rows)


def test_equal_losses_in_all_pairs_name_the_field_that_changes_nothing(ignored):
    comparison = only(ignored)
    ignored_field = "the script seems to ignore weight_decay"
    warning = f"arms baseline and none have equal losses in all 4 pairs: {ignored_field}"
    assert f"none: {warning}" in comparison.warnings
    assert f"is undecided ({warning})" in comparison_text([comparison])
    assert (comparison.verdict, comparison.with_scale.code) == ("undecided", "none")


def test_one_pair_that_differs_in_the_last_digit_is_no_such_case(ignored):
    ignored.loc[0, "loss"] += 1e-12
    assert not any("equal losses" in warning for warning in only(ignored).warnings)


@pytest.mark.parametrize(
    ("name", "other"),
    [("no-decay", "No-Decay"), ("caf\u00e9", "cafe\u0301"), ("no_decay", "no decay")],
    ids=["capital letters", "accents", "separators"],
)
def test_arms_whose_names_differ_in_their_writing_alone_are_asked_about(sweep, name, other):
    text = comparison_text(compared(sweep({"baseline": 0.0, name: -0.02, other: -0.03})).values())
    assert f"arms {name} and {other} differ in how they are written alone: one? Give it one name" in text
    signs = compared(sweep({"baseline": 0.0, "a+b": 0.0, "a-b": 0.0}))
    assert "written alone" not in comparison_text(signs.values())
