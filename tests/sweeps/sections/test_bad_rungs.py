"""Sizes that cannot be: mixtures whose experts do not fit, ladders that a rule cannot make."""

import re

import pytest

from scalevec import sweeps

RUNG = "[{{name: odd, width: 64, layers: 2, {}}}]"
# what the ladder is, and the message after its line
CASES = {
    RUNG.format("feed_forward: 101, experts: {n_experts: 4, top_k: 2}"): (
        "ladder[0].feed_forward: 101; allowed: a multiple of top_k + shared_experts, 2, unless the experts"
    ),
    RUNG.format("experts: {n_experts: 4, top_k: 5}"): (
        "ladder[0].experts.top_k: 5; allowed: at most n_experts, 4"
    ),
    RUNG.format("experts: {n_experts: 4, top_k: 2, dense_layers: 2}"): (
        "ladder[0].experts.dense_layers: 2; allowed: less than the layers, 2"
    ),
    RUNG.format("feed_forward: 100, experts: {n_experts: 4, top_k: 2, feed_forward: 64}"): (
        "ladder[0].feed_forward: 100; allowed: 128, what a token passes of the experts"
    ),
    RUNG.format("experts: {n_experts: 4, top_k: 2, over: max}"): "ladder[0].experts.over: 'max'; allowed: ",
    "{from: 2.0e7, to: 1.0e7, rungs: 3}": "ladder.to: 10000000.0; allowed: more than from, 20000000.0",
    "{from: 1.0e7, to: 1.05e7, rungs: 9}": (
        "ladder.rungs: 9; allowed: fewer rungs, or a wider range: two fall on one shape"
    ),
    "{from: 1.0e7, too: 2.0e7, rungs: 3}": (
        "ladder.too: unknown key; did you mean to? (allowed: from, to, rungs, experts)"
    ),
    "3": "ladder: 3; allowed: the name of a preset",
}


@pytest.mark.parametrize(("ladder", "expected"), CASES.items())
def test_a_ladder_that_cannot_be_is_refused_with_its_place_and_what_is_allowed(ladder, expected):
    with pytest.raises(sweeps.SweepError, match=re.escape(f"my.yaml:2: {expected}")):
        sweeps.loads(f"name: x\nladder: {ladder}\narms: {{a: {{}}}}", "my.yaml")
