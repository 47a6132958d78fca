"""The quick way to a trial's id gives the id that is defined by the semantic fields."""

from dataclasses import dataclass, replace

import pytest

import golden_trial
from scalevec.model.config import OptimizerConfig, Trial
from scalevec.model.fields import added_field
from scalevec.model.identity import digest, semantic_fields, trial_id
from scalevec.model.strategies import PRESETS, ScaleVectorStrategy

TRIAL = replace(golden_trial.TRIAL, corpus='a "corpus" \u00e9')


def with_strategy(strategy: ScaleVectorStrategy) -> Trial:
    return replace(TRIAL, model=replace(TRIAL.model, scale_vectors=strategy))


def defined(trial: Trial) -> str:
    return digest(semantic_fields(trial))


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", PRESETS)
def test_the_id_is_the_digest_of_the_semantic_fields(name: str, decay: float) -> None:
    trial = replace(with_strategy(PRESETS[name]), optimizer=OptimizerConfig(weight_decay=decay))
    assert trial_id(trial) == defined(trial)


def test_parts_that_are_equal_but_written_differently_keep_their_ids() -> None:
    whole, real = (replace(TRIAL, optimizer=OptimizerConfig(clip_norm=value)) for value in (1, 1.0))
    assert whole == real
    for trial in (whole, real, whole):
        assert trial_id(trial) == defined(trial)
    assert trial_id(whole) != trial_id(real)


def test_strategies_that_are_equal_but_written_differently_keep_their_ids() -> None:
    for factor in (1, 1.0, 1, 2, 2.0):
        trial = with_strategy(ScaleVectorStrategy(branches="heterogeneous", learning_rate_factor=factor))
        assert trial_id(trial) == defined(trial)


def test_a_part_that_is_gone_lends_its_id_to_nobody() -> None:
    for number in range(300):  # each part takes the place of the one before, unless that is kept
        trial = replace(TRIAL, optimizer=OptimizerConfig(learning_rate=1e-3 + number * 1e-6))
        assert trial_id(trial) == defined(trial)


@dataclass(frozen=True)
class TrialOfTomorrow(Trial):
    accumulation: int = added_field(1)


def test_a_field_of_tomorrow_is_left_out_at_its_default() -> None:
    values = {name: getattr(TRIAL, name) for name in vars(TRIAL)}
    assert trial_id(TrialOfTomorrow(**values)) == trial_id(TRIAL)
    changed = TrialOfTomorrow(**values, accumulation=2)
    assert trial_id(changed) == defined(changed) != trial_id(TRIAL)
