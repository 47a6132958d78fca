"""Token budgets: in tokens per parameter, in tokens, in FLOPs."""

import pytest

RUNGS = ["tiny-25k", "tiny-55k"]


def test_absolute_tokens_are_the_same_on_every_rung(cells_of):
    cells = cells_of(ladder=RUNGS, tokens=[512_000, 1.024e6])
    assert [cell.template.tokens for cell in cells] == [512_000, 1_024_000] * 2


def test_flops_are_6_n_d_on_every_rung(cells_of):
    """An isoFLOP grid: what a larger model spends on its parameters it does not spend on tokens."""
    cells = cells_of(ladder=RUNGS, flops=[3e11])
    for cell in cells:
        tokens = 3e11 / (6 * cell.n_params)
        assert abs(cell.template.tokens - tokens) <= cell.template.batch_tokens / 2
    assert cells[0].template.tokens > cells[1].template.tokens


NAMES = {"tokens_per_parameter": "tokens_per_parameter", "tokens": "tokens_budget", "flops": "flops_budget"}


@pytest.mark.parametrize(("kind", "name"), NAMES.items())
def test_a_setting_holds_the_budget_as_given_the_same_on_every_rung(kind, name, cells_of):
    cells = cells_of(ladder=RUNGS, **{kind: [1e6 if kind != "flops" else 1e12]})
    assert len({cell.setting[name] for cell in cells}) == 1


@pytest.mark.parametrize("kind", ["tokens_per_parameter", "tokens", "flops"])
def test_a_budget_is_excluded_by_the_word_of_the_file(kind, cells_of):
    low, high = (1e9, 1e10) if kind == "flops" else (1e5, 1e6)
    cells = cells_of(**{kind: [low, high]}, exclude=[{kind: low}])
    assert len(cells) == 1


def test_budgets_of_two_kinds_are_refused(refusal):
    text = "name: a\nladder: [tiny-25k]\narms: {b: {}}\ntokens: [1.0e+9]\nflops: [1.0e+15]\n"
    allowed = "allowed: one of tokens_per_parameter, tokens, flops"
    assert f"my.yaml:5: flops: the budget is given by tokens too; {allowed}" in refusal(text)


@pytest.mark.parametrize("value", ["[0]", "[-1]", "[]", "'1.0e+9'", "[.nan]", "[many]"])
def test_a_budget_that_is_none_is_refused(value, refusal):
    text = f"name: a\nladder: [tiny-25k]\narms: {{b: {{}}}}\ntokens: {value}\n"
    assert "my.yaml:4: tokens" in refusal(text)


def test_a_warm_up_beyond_the_budget_is_refused_at_its_line(refusal):
    text = "name: a\nladder: [tiny-25k]\narms: {b: {}}\ntokens: [2048]\ntrial: {warmup_tokens: 4096}\n"
    assert "my.yaml:5: trial.warmup_tokens: 4096; allowed: at most the trained tokens, 2048" in refusal(text)
