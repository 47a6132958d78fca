"""A sweep file that changed after its values were chosen: the choices stay, and a person is told."""

import math

import pytest

from scalevec import sweeps
from scalevec.orchestrator.sweep.kept_plan import outdated
from scalevec.orchestrator.tuning.tuner import Tuner
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CorpusFacts

FACTS = CorpusFacts("f" * 64, 1024, 10_000_000)
GRID, RUNGS, SEEDS = "learning_rate: [0.01, 0.02, 0.04]", "rungs: [a]", "seeds: [100]"


def bowl(trial):
    return math.log2(trial.optimizer.learning_rate / 0.02) ** 2


def warnings(before: str, after: str) -> list[str]:
    frozen = Tuner(expand(sweeps.loads(before), FACTS), [], extend=1).run(lambda _trials: bowl)
    return outdated(Tuner(expand(sweeps.loads(after), FACTS), frozen, extend=1))


def test_an_unchanged_file_gives_no_warning(sweep_text):
    assert warnings(sweep_text, sweep_text) == []


@pytest.mark.parametrize(
    ("was", "becomes", "where"),
    [
        (GRID, "learning_rate: [0.01, 0.02, 0.04, 0.08, 0.16]", "learning_rate at a"),
        (RUNGS, "rungs: [a, b]", "learning_rate at b"),
        (SEEDS, "seeds: [100, 101]", "learning_rate at a"),
    ],
)
def test_a_file_that_asks_for_other_tuning_is_said_not_to_be_followed(sweep_text, was, becomes, where):
    (warning,) = warnings(sweep_text, sweep_text.replace(was, becomes))
    assert f"tunes otherwise by now: {where}. `scalevec run --retune` chooses again" in warning


def test_a_rung_that_is_no_longer_tuned_keeps_its_value_and_is_named(sweep_text):
    (warning,) = warnings(sweep_text.replace(RUNGS, "rungs: [a, b]"), sweep_text)
    assert "by now: learning_rate at b. " in warning


def test_a_grid_that_only_lost_values_gives_no_warning(sweep_text):
    """What was tried beyond the file's grid, such as an extension, takes nothing from the choice."""
    wider = sweep_text.replace(GRID, "learning_rate: [0.005, 0.01, 0.02, 0.04, 0.08]")
    assert warnings(wider, sweep_text) == []


def test_values_that_a_prediction_spared_are_not_missed(sweep_text):
    """Unless the file asks for the whole grid now."""
    whole = sweep_text.replace("rungs: [a]", "rungs: [a, b, c]").replace(
        "  - {name: b", "  - {name: c, width: 64, layers: 1}\n  - {name: b"
    )
    whole = whole.replace(GRID, "learning_rate: [0.005, 0.01, 0.02, 0.04, 0.08]")
    frozen = Tuner(expand(sweeps.loads(whole), FACTS), [], 1, predict_larger=True).run(lambda _trials: bowl)
    spared = Tuner(expand(sweeps.loads(whole), FACTS), frozen, 1, predict_larger=True)
    assert outdated(spared) == []
    (warning,) = outdated(Tuner(expand(sweeps.loads(whole), FACTS), frozen, 1))
    assert "learning_rate at c" in warning
