"""What a trial took beside what was planned of it."""

import pytest

from scalevec.orchestrator.commands.look.explain import account_lines, accounts

TIMING = {
    "step_s": {"p5": 0.1, "p50": 0.2, "p95": 0.4},
    "data_s": 1.0,
    "checkpoints_s": 2.0,
    "evaluation_s": 3.0,
    "mfu": 0.31,
}
RESULT = {
    "wall_s": 57.0,
    "peak_memory_bytes": 400_000_000,
    "timing": TIMING,
}


def test_what_a_trial_took_is_said_beside_what_its_sweep_planned() -> None:
    record = accounts(RESULT, planned_s=90.0)
    assert record is not None
    assert record["actual_s"] == 60.0
    time, step, memory = account_lines(record)
    shares = "data 1 s, checkpoints 2 s, evaluation 3 s"
    assert time == f"  time: 1 min 0 s, planned 1 min 30 s; of it {shares}"
    assert step == "  step: 0.2 s (5 % to 95 %: 0.1 to 0.4); 31% of the device's peak"
    assert memory == "  memory: 400 MB"
    assert next(account_lines(accounts(RESULT))) == f"  time: 1 min 0 s; of it {shares}"


@pytest.mark.parametrize("odd", [None, "text", -1, -1e300, float("nan"), 10**400, [], [1], {"a": 1}])
def test_a_damaged_result_has_accounts_that_can_be_said_or_none(odd: object) -> None:
    results = [RESULT | {name: odd} for name in RESULT]
    results += [RESULT | {"timing": TIMING | {name: odd}} for name in TIMING]
    results += [RESULT | {"timing": TIMING | {"step_s": {"p5": odd, "p50": odd, "p95": odd}}}]
    for result in results:
        record = accounts(result)
        assert record is None or list(account_lines(record))
