"""The table of parts: which an arm has, whether the best is separated from the next, who is not ranked."""

import pytest
from tests.shown_tables import column, records, shown

from scalevec import analysis
from scalevec.analysis.tables import ablation
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
    compared = {
        comparison.arm: comparison.loss_difference
        for comparison in analysis.compare(rows, reference="baseline", bootstrap=0).values()
    }
    got = {record["arm"]: record for record in records(table_shown) if record["cell"] == "all"}
    for arm, difference in compared.items():
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
    marks = ablation.marks(dict(zip(ablation.FIELDS, values, strict=True)))
    assert {
        name: text for name, text in zip((*ablation.CHOICES, "decay"), marks, strict=True) if text
    } == marked


def test_ablation_says_whether_the_best_arm_is_separated_from_the_next(source):
    table_shown = shown(source(noise=1e-3), "ablation")
    ((row, position),) = table_shown.best
    assert (table_shown.rows[row][0], table_shown.columns[position]) == ("unified", "all")
    assert any("unified is separated from the next, product" in note for note in table_shown.notes)


def test_an_arm_that_lacks_a_cell_is_not_ranked(source):
    rows = source({"baseline": 0.0, "unified": -0.03, "product": -0.01})
    table_shown = shown(rows[~((rows["arm"] == "unified") & (rows["rung"] == "150k"))], "ablation")
    ((row, _),) = table_shown.best
    assert table_shown.rows[row][0] == "product"
    assert "Not over all cells, so not to be ranked beside the others: unified." in table_shown.notes


def test_no_arm_below_the_reference_is_bold(source):
    table_shown = shown(source({"baseline": 0.0, "none": 0.04}), "ablation")
    assert table_shown.best == frozenset()
    assert any("No arm lies below the reference" in note for note in table_shown.notes)


def test_an_arm_at_another_precision_is_ranked(beside_two_precisions):
    rows = beside_two_precisions({"unified": -0.03}, {"unified": "bfloat16"})
    table_shown = shown(rows, "ablation")
    ((row, position),) = table_shown.best
    assert (table_shown.rows[row][0], table_shown.columns[position]) == ("unified", "all")
    notes = " ".join(table_shown.notes)
    assert "No arm lies below the reference" not in notes
    assert "Not over all cells" not in notes
    assert "Differences of unified: to baseline at another precision, shown in the cells" in notes
    # Paired with both, unified would be compared in bfloat16, and the row of both is in float32.
    assert "the next" not in notes


def test_arms_at_one_precision_are_told_apart(beside_two_precisions):
    notes = " ".join(shown(beside_two_precisions({"unified": -0.03}, {}), "ablation").notes)
    assert "unified is separated from the next, both: −0.04" in notes
    assert "another precision" not in notes


def test_an_arm_that_lacks_a_cell_is_not_ranked_beside_two_precisions(beside_two_precisions):
    rows = beside_two_precisions({"unified": -0.03}, {"unified": "bfloat16"})
    table_shown = shown(rows[~((rows["arm"] == "unified") & (rows["rung"] == "150k"))], "ablation")
    assert table_shown.best == frozenset()
    assert "Not over all cells, so not to be ranked beside the others: unified." in table_shown.notes


def test_ablation_of_a_plain_table_has_no_check_marks(sweep):
    table_shown = shown(sweep(), "ablation")
    assert table_shown.columns == ("arm", "25k", "55k", "83k", "150k", "all", "Holm p", "pairs")
