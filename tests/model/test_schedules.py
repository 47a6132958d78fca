"""The learning rate by step."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalevec.model.config import ModelConfig, OptimizerConfig, ScheduleConfig, Shape, Trial
from scalevec.model.optimization import SCHEDULES
from scalevec.model.schedules import learning_rate
from support import BATCH_TOKENS, STEPS

WARMUP = 4  # steps, of the 24 of the fixture


@pytest.fixture
def trial() -> Trial:
    return replace(TRIAL, schedule=ScheduleConfig(warmup_tokens=WARMUP * BATCH_TOKENS))


def rates(trial):
    return [learning_rate(trial, step) for step in range(trial.steps)]


def factors(trial, name, **options):
    """The rates of the schedule over the peak, after a warm-up of 4 of 24 steps."""
    schedule = ScheduleConfig(name, WARMUP * BATCH_TOKENS, **options)
    trial = replace(trial, schedule=schedule, optimizer=OptimizerConfig(learning_rate=1.0))
    return rates(trial)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_warm_up_is_linear_and_ends_at_the_peak(name, trial):
    assert factors(trial, name)[:WARMUP] == [0.25, 0.5, 0.75, 1.0]


def test_the_last_step_has_the_final_fraction_of_the_peak(trial):
    assert rates(trial)[-1] == pytest.approx(0.1 * trial.optimizer.learning_rate)


def test_half_way_down_the_cosine_is_the_mean_of_both_ends(trial):
    trial = replace(trial, schedule=ScheduleConfig(final_fraction=0.2))
    assert rates(trial)[STEPS // 2 - 1] == pytest.approx(0.6 * trial.optimizer.learning_rate)


def test_the_line_falls_by_the_same_step_down_to_zero(trial):
    expected = [1 - step / 20 for step in range(1, 21)]
    assert factors(trial, "linear")[WARMUP:] == pytest.approx(expected, abs=1e-15)
    assert factors(trial, "linear")[-1] == 0.0


def test_the_constant_schedule_stays_at_the_peak(trial):
    assert factors(trial, "constant")[WARMUP:] == [1.0] * 20


def test_the_inverse_root_halves_when_the_tokens_are_four_times_the_warm_up(trial):
    expected = [math.sqrt(4 / step) for step in range(5, 25)]
    assert factors(trial, "inverse-sqrt")[WARMUP:] == pytest.approx(expected, rel=1e-15)
    assert factors(trial, "inverse-sqrt")[15] == 0.5


@pytest.mark.parametrize(
    ("shape", "way_down"),
    [("linear", lambda share: 1 - share), ("1-sqrt", lambda share: 1 - math.sqrt(share))],
)
@pytest.mark.parametrize("final", [0.0, 0.1])
def test_wsd_is_stable_until_its_cooldown(shape, way_down, final, trial):
    actual = factors(trial, "wsd", cooldown=shape, cooldown_fraction=0.25, final_fraction=final)
    assert actual[WARMUP:18] == [1.0] * 14
    expected = [final + (1 - final) * way_down(step / 6) for step in range(1, 7)]
    assert actual[18:] == pytest.approx(expected, abs=1e-15)
    assert actual[-1] == final


def test_a_cooldown_is_a_whole_number_of_batches_and_never_none(trial):
    schedule = ScheduleConfig("wsd", cooldown_fraction=0.01)
    assert replace(trial, schedule=schedule).cooldown_tokens == BATCH_TOKENS
    schedule = ScheduleConfig("wsd", cooldown_fraction=0.3)
    assert replace(trial, schedule=schedule).cooldown_tokens == 7 * BATCH_TOKENS


TRIAL = Trial(
    ModelConfig(Shape(16, 1, 2, 2, 48), 256), OptimizerConfig(), ScheduleConfig(), "c0", 32, 128, 3072, 0
)


@given(name=st.sampled_from(list(SCHEDULES)), steps=st.integers(2, 60), data=st.data())
def test_the_rate_rises_to_the_peak_once_and_then_never_rises(name, steps, data):
    takes = SCHEDULES[name].options
    cooldown = data.draw(st.floats(0.01, 1)) if "cooldown_fraction" in takes else 0.0
    room = steps - max(round(cooldown * steps), 1) if cooldown else steps
    least = 1 if name == "inverse-sqrt" else 0
    options = {"warmup_tokens": data.draw(st.integers(least, max(room, least))) * BATCH_TOKENS}
    if "final_fraction" in takes:
        options["final_fraction"] = data.draw(st.floats(0, 1))
    if cooldown:
        options |= {
            "cooldown_fraction": cooldown,
            "cooldown": data.draw(st.sampled_from(["linear", "1-sqrt"])),
        }
    actual = rates(replace(TRIAL, tokens=steps * BATCH_TOKENS, schedule=ScheduleConfig(name, **options)))
    top = actual.index(max(actual))
    assert actual[:top] == sorted(actual[:top])
    assert actual[top:] == sorted(actual[top:], reverse=True)
    assert max(actual) <= TRIAL.optimizer.learning_rate * (1 + 1e-12)
    assert min(actual) >= 0
