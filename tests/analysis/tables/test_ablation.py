"""The table of parts: which an arm has, whether the best is separated from the next, who is not ranked."""

import pytest
from tests.shown_tables import column, records, shown

from comparisons import compared
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
