"""``evaluation_tokens``: on how much of each held-out split a trial is evaluated."""

from dataclasses import replace

import pytest

from scalevec.sweeps.expansion.trials import evaluated_tokens


@pytest.mark.parametrize(("given", "kept"), [({}, 4_000_000), ({"evaluation_tokens": 1000}, 1000)], ids=str)
def test_a_trial_holds_what_is_given_else_four_million(given, kept, cells_of):
    assert cells_of(trial=given)[0].template.evaluation_tokens == kept


def test_the_evaluated_tokens_are_those_that_are_there_at_most(cells_of, corpus):
    (cell,) = cells_of(trial={"evaluation_tokens": 1000})
    facts = replace(corpus, held_out_tokens=(600, 5000))
    assert evaluated_tokens(cell.template, facts) == 1600
    assert evaluated_tokens(replace(cell.template, evaluation_tokens=0), facts) == 5600


@pytest.mark.parametrize("value", ["-1", "1.5", "true", "all", "[]"])
def test_anything_else_is_refused(value, changed, refusal):
    text = changed("batch_tokens: 1024", f"batch_tokens: 1024, evaluation_tokens: {value}")
    assert "evaluation_tokens: " in refusal(text)


def test_arms_are_evaluated_on_the_same_tokens(changed, refusal):
    text = changed("{scale_vectors: unified}", "{scale_vectors: unified, evaluation_tokens: 0}")
    message = refusal(text)
    assert "arms.unified.evaluation_tokens" in message
    assert "arms are compared on the same tokens" in message
