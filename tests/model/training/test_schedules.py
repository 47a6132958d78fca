"""The learning rate by step."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import BATCH_TOKENS, STEPS

from model.config import ScheduleConfig
from model.training.schedules import learning_rate


def rates(trial):
    return [learning_rate(trial, step) for step in range(trial.steps)]


def test_the_warm_up_is_linear_and_ends_at_the_peak(trial):
    peak = trial.optimizer.learning_rate
    assert rates(trial)[:4] == pytest.approx([peak / 4, peak / 2, 3 * peak / 4, peak])


def test_the_last_step_has_the_final_fraction_of_the_peak(trial):
    assert rates(trial)[-1] == pytest.approx(0.1 * trial.optimizer.learning_rate)


def test_half_way_down_the_cosine_is_the_mean_of_both_ends(trial):
    trial = replace(trial, schedule=ScheduleConfig(final_fraction=0.2))
    assert rates(trial)[STEPS // 2 - 1] == pytest.approx(0.6 * trial.optimizer.learning_rate)


@pytest.fixture(scope="module")
def any_trial(corpus):
    from model.config import ModelConfig, OptimizerConfig, Shape, Trial

    model = ModelConfig(Shape(16, 1, 2, 2, 48), 256)
    return Trial(model, OptimizerConfig(), ScheduleConfig(), corpus.fingerprint, 32, 128, 3072, 0)


@given(steps=st.integers(1, 60), warmup=st.integers(0, 60), final=st.floats(0, 1))
def test_the_rate_rises_to_the_peak_once_and_then_never_rises(any_trial, steps, warmup, final):
    schedule = ScheduleConfig(warmup_tokens=min(steps, warmup) * BATCH_TOKENS, final_fraction=final)
    found = rates(replace(any_trial, tokens=steps * BATCH_TOKENS, schedule=schedule))
    top = found.index(max(found))
    assert found[:top] == sorted(found[:top])
    assert found[top:] == sorted(found[top:], reverse=True)
    assert max(found) <= any_trial.optimizer.learning_rate * (1 + 1e-12)
