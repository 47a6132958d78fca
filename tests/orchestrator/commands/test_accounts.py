"""What a trial took beside what was planned of it."""

import pytest

from scalevec.model.config import ModelConfig, OptimizerConfig, RunOptions, ScheduleConfig, Shape, Trial
from scalevec.model.identity import semantic_fields
from scalevec.orchestrator.commands.look.explain import account_lines, accounts
from scalevec.orchestrator.costs.estimates import cost

TRIAL = Trial(
    ModelConfig(Shape(64, 2, 4, 4, 176), 256),
    OptimizerConfig(),
    ScheduleConfig(),
    "c0" * 32,
    64,
    1024,
    10_240,
    0,
)
TIMING = {
    "step_s": {"p5": 0.1, "p50": 0.2, "p95": 0.4},
    "data_s": 1.0,
    "checkpoints_s": 2.0,
    "evaluation_s": 3.0,
    "mfu": 0.31,
    "allocated_bytes": None,
}
RESULT = {
    "device": "cpu",
    "micro_batch": 4,
    "world_size": 1,
    "recompute": "block",
    "keep": "none",
    "test_tokens": 1001,
    "validation_tokens": 2001,
    "wall_s": 57.0,
    "peak_memory_bytes": 400_000_000,
    "timing": TIMING,
}


def test_the_plan_is_that_of_the_trial_as_it_was_run() -> None:
    record = accounts(semantic_fields(TRIAL), RESULT)
    planned = cost(TRIAL, RunOptions(micro_batch=4, recompute="block"), 3000)
    assert record is not None
    assert record["planned_s"] == planned.seconds - planned.start_s
    assert record["planned_bytes"] == planned.memory_bytes
    assert record["actual_s"] == 60.0
    time, step, memory = account_lines(record)
    assert time.startswith("  time: 1 min 0 s, planned ")
    assert time.endswith("of it data 1 s, checkpoints 2 s, evaluation 3 s")
    assert step == "  step: 0.2 s (5 % to 95 %: 0.1 to 0.4); 31% of the device's peak"
    assert memory.startswith("  memory: 400 MB, planned 3")


def test_what_the_sweep_planned_goes_first() -> None:
    record = accounts(semantic_fields(TRIAL), RESULT, planned_s=90.0)
    assert next(account_lines(record)).startswith("  time: 1 min 0 s, planned 1 min 30 s")


@pytest.mark.parametrize("odd", [None, "text", -1, -1e300, float("nan"), 10**400, [], [1], {"a": 1}])
def test_a_damaged_result_has_accounts_that_can_be_said_or_none(odd: object) -> None:
    results = [RESULT | {name: odd} for name in RESULT]
    results += [RESULT | {"timing": TIMING | {name: odd}} for name in TIMING]
    results += [RESULT | {"timing": TIMING | {"step_s": {"p5": odd, "p50": odd, "p95": odd}}}]
    for result in results:
        record = accounts(semantic_fields(TRIAL), result)
        assert record is None or list(account_lines(record))


def test_a_result_of_an_earlier_version_has_no_accounts() -> None:
    earlier = {name: value for name, value in RESULT.items() if name != "timing"}
    assert accounts(semantic_fields(TRIAL), earlier) is None
    assert list(account_lines(accounts(semantic_fields(TRIAL), None))) == []
