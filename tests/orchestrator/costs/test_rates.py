"""The rates of plans: those of this machine where it was measured, and what becomes of a bad file."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from scalevec.model.accounting import flops_per_token
from scalevec.model.config import ModelConfig, OptimizerConfig, RunOptions, ScheduleConfig, Shape, Trial
from scalevec.orchestrator.costs.estimates import FORKED_START_S, Cost
from scalevec.orchestrator.costs.rates import (
    ASSUMED,
    ASSUMED_FLOPS_PER_S,
    MeasuredDevice,
    MeasuredMachine,
    MeasuredRate,
    Rates,
    measured_here,
    rates_path,
)

TRIAL = Trial(
    ModelConfig(Shape(64, 2, 4, 4, 176), 256),
    OptimizerConfig(),
    ScheduleConfig(),
    "c0" * 32,
    64,
    1024,
    102_400,
    0,
)
WORK = flops_per_token(TRIAL.model, 64)
CPU, GPU = RunOptions(), RunOptions(device="cuda")


def rate(work: int, flops_per_s: float, precision: str = "float32") -> MeasuredRate:
    return MeasuredRate("a size", 1000, precision, 64, 1024, 0, work, 10, 1024 * work / flops_per_s)


def machine(*rates: MeasuredRate, device: str = "cpu", load: float = 0.1) -> MeasuredMachine:
    known = MeasuredDevice(device, "a device", 10**10, rates)
    return MeasuredMachine(1, "here", "2026-11-22T10:00:00.000+00:00", "2.9.0", 1, load, (known,))


@pytest.fixture
def messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    return []


def test_without_figures_a_rate_is_assumed(messages: list[str]) -> None:
    assert measured_here(messages.append) is ASSUMED
    assert ASSUMED.of(TRIAL, GPU) == (ASSUMED_FLOPS_PER_S["cuda"], "assumed")
    assert messages == []


def test_figures_that_were_kept_are_found_again(messages: list[str]) -> None:
    kept = machine(rate(WORK, 2e10))
    kept.keep()
    assert measured_here(messages.append).measured == kept
    assert messages == []


def test_a_trial_of_a_measured_size_takes_the_time_that_was_measured() -> None:
    rates = Rates(machine(rate(WORK, 2e10)))
    planned = Cost(TRIAL, CPU, rates=rates)
    assert planned.seconds == pytest.approx(FORKED_START_S + WORK * TRIAL.tokens / 2e10)
    columns = planned.columns()
    assert (columns["flops_per_s"], columns["rate"]) == (pytest.approx(2e10), "measured here on 2026-11-22")


def test_between_two_sizes_the_rate_is_a_power_law_and_beyond_them_the_nearest() -> None:
    def at(*points: tuple[float, float]) -> float:
        return Rates(machine(*(rate(round(WORK * by), flops) for by, flops in points))).of(TRIAL, CPU)[0]

    assert at((0.5, 1e10), (2, 4e10)) == pytest.approx(2e10, rel=1e-3)
    assert at((2, 4e10), (4, 8e10)) == pytest.approx(4e10)
    assert at((0.1, 1e10), (0.5, 3e10)) == pytest.approx(3e10)


def test_what_was_not_measured_is_assumed() -> None:
    rates = Rates(machine(rate(WORK, 2e10)))
    assert rates.of(TRIAL, GPU)[1] == rates.of(replace(TRIAL, precision="bfloat16"), CPU)[1] == "assumed"


def test_of_several_devices_the_slowest_counts() -> None:
    fast, slow = (machine(rate(WORK, flops), device=f"cuda:{flops}") for flops in (4e13, 1e13))
    both = replace(fast, devices=fast.devices + slow.devices)
    assert Rates(both).of(TRIAL, GPU)[0] == pytest.approx(1e13)


def test_a_busy_machine_is_told_of() -> None:
    words = Rates(machine(rate(WORK, 2e10), load=0.9)).words
    assert words == "measured here on 2026-11-22 while other work ran"


def without_rate(text: str) -> str:
    return text.replace('"step_s"', '"step_seconds"')


def of_tomorrow(text: str) -> str:
    return json.dumps(json.loads(text) | {"version": 2})


def standing_still(text: str) -> str:
    values = json.loads(text)
    values["devices"][0]["rates"][0]["step_s"] = 0.0
    return json.dumps(values)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda text: text[: len(text) // 2], "JSON"),
        (lambda _: "[]", "list"),
        (without_rate, "step_seconds"),
        (of_tomorrow, "is of version 2, not 1"),
        (standing_still, "no positive number"),
    ],
    ids=["cut", "a list", "unknown field", "newer", "no rate"],
)
def test_a_file_that_cannot_be_used_is_told_of_once_and_rates_are_assumed(
    messages: list[str], damage: Callable[[str], str], problem: str
) -> None:
    machine(rate(WORK, 2e10)).keep()
    rates_path().write_text(damage(rates_path().read_text()))
    assert measured_here(messages.append) is ASSUMED
    assert len(messages) == 1
    assert messages[0].startswith(f"warning: {rates_path()}")
    assert problem in messages[0]
    assert messages[0].endswith("times are from assumed rates. To measure again: scalevec benchmark")
