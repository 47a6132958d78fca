"""Which machines are avoided, from what run directories say."""

import pytest

from scalevec.orchestrator.attempts.retry_policy import NodeWatch


def ran(host):
    return {"state": "running", "host": host, "attempt": 1}


def fault(cause, **details):
    return {"state": "pending", "cause": cause, **details}


KILLED, WELL = [ran("a"), fault("killed")], [ran("b")]
OF_THE_TRIAL = [ran("a"), fault("out_of_memory"), ran("a"), fault("error", error="KeyError: 'x'")]
GPU = [ran("a"), fault("error", error="AcceleratorError: CUDA error: uncorrectable ECC error")]
MEMORY = [ran("a"), fault("out_of_memory", error="AcceleratorError: CUDA error: out of memory")]
NAMED = [fault("node_failure", node="a")]


@pytest.mark.parametrize(
    ("histories", "bad"),
    [
        pytest.param([KILLED, [ran("a"), fault("node_failure")], WELL], ("a",), id="two trials died there"),
        pytest.param([KILLED * 2, WELL], (), id="one trial that dies often"),
        pytest.param([OF_THE_TRIAL] * 3 + [WELL], (), id="faults of the trials"),
        pytest.param([GPU, GPU, WELL], ("a",), id="a broken GPU"),
        pytest.param([MEMORY, MEMORY, WELL], (), id="memory that CUDA lacks"),
        pytest.param([NAMED, NAMED, WELL], ("a",), id="named by the executor"),
    ],
)
def test_a_machine_is_bad_where_several_trials_failed_by_its_fault(histories, bad):
    watch = NodeWatch()
    for _ in range(2):  # to learn the same again changes nothing
        for position, events in enumerate(histories):
            watch.learn(f"trial {position}", events)
    assert watch.bad == bad


def test_never_more_than_half_of_the_machines_are_avoided():
    watch = NodeWatch()
    for position, host in enumerate("aabbcc"):
        watch.learn(f"trial {position}", [ran(host), fault("killed")])
    assert len(watch.bad) == 1
