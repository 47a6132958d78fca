"""Compiled blocks in several processes: each compiles what it has, whole or gathered from shares."""

import pytest

from parallel_worlds import losses, small_trial, together, trained
from scalevec.model.train.devices import missing_compiler

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(missing_compiler("cpu")), reason="needs a C++ compiler"),
]


@pytest.mark.parametrize(("shard", "micro_batch"), [(False, 0), (False, 1), (True, 0)])
def test_a_compiled_trial_is_trained_together_as_uncompiled_by_one_process(
    shard, micro_batch, corpus, tmp_path
):
    trial = small_trial(corpus, "adamw")
    alone = trained(trial, corpus, tmp_path / "alone")
    leader, follower = together(
        2, trial, corpus, tmp_path / "together", shard=shard, compiled=True, micro_batch=micro_batch
    )
    assert leader["result"]["arithmetic"] == "compiled"
    assert losses(leader) == pytest.approx(losses(alone), rel=1e-10)
    assert leader["parameters"] == follower["parameters"]
