"""Larger rungs that start around what smaller ones predict; files that change after values were chosen."""

import json
import math

import pytest

from scalevec import sweeps
from scalevec.orchestrator.sweep.kept_plan import outdated
from scalevec.orchestrator.tuning.choices import from_json, to_json
from scalevec.orchestrator.tuning.tuner import Tuner
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CorpusFacts

FACTS = CorpusFacts("f" * 64, 1024, 10_000_000)
WIDTHS = {"a": 16, "b": 32, "c": 64}
GRID = [0.005, 0.01, 0.02, 0.04, 0.08]
WITH_C = ("  - {name: b", "  - {name: c, width: 64, layers: 1}\n  - {name: b")
"""What makes three rungs of the sweep's two."""


@pytest.fixture
def cells(sweep_text):
    text = sweep_text.replace(*WITH_C)
    text = text.replace("[0.01, 0.02, 0.04], rungs: [a]", f"{GRID}, rungs: [a, b, c]")
    return expand(sweeps.loads(text), FACTS)


class Bowls:
    """A parabola in log(rate) at each rung, the same for both arms; keeps what was asked, call by call."""

    def __init__(self, **optima):
        self.optima = {WIDTHS[rung]: optimum for rung, optimum in optima.items()}
        self.asked = []

    def train(self, trials):
        self.asked.append([(cell.rung, trial.optimizer.learning_rate) for cell, trial in trials])
        return lambda trial: (
            3 + math.log2(trial.optimizer.learning_rate / self.optima[trial.model.shape.width]) ** 2
        )

    def rates(self, rung):
        return sorted({rate for asked in self.asked for at, rate in asked if at == rung})


def tuned(cells, bowls, frozen=(), extend=1):
    return Tuner(cells, frozen, extend, predict_larger=True).run(bowls.train)


def at(choices, rung):
    return next(choice for choice in choices if choice.rung == rung)


def test_the_two_smallest_rungs_get_the_whole_grid_and_the_next_a_step_around_the_prediction(cells):
    bowls = Bowls(a=0.04, b=0.02, c=0.01)
    choices = tuned(cells, bowls)
    assert bowls.rates("a") == bowls.rates("b") == GRID
    predicted = at(choices, "c").predicted.value
    assert predicted == pytest.approx(0.01, rel=0.25)  # by rounded choices
    assert bowls.rates("c") == pytest.approx([predicted / 2, predicted, 2 * predicted])
    assert at(choices, "c").vertex == pytest.approx(0.01)
    assert at(choices, "c").status == "tuned"
    assert at(choices, "c").predicted.whole == tuple(GRID)


def test_a_larger_rung_waits_until_the_smaller_ones_are_chosen(cells):
    bowls = Bowls(a=0.04, b=0.02, c=0.01)
    tuned(cells, bowls)
    assert {rung for rung, _ in bowls.asked[0]} == {"a", "b"}
    assert {rung for rung, _ in bowls.asked[1]} == {"c"}


def test_unasked_every_rung_gets_the_whole_grid_at_once(cells):
    bowls = Bowls(a=0.04, b=0.02, c=0.01)
    choices = Tuner(cells, [], 1).run(bowls.train)
    assert len(bowls.asked) == 1
    assert bowls.rates("c") == GRID
    assert all(choice.predicted is None for choice in choices)


@pytest.mark.parametrize("optimum", [0.005, 0.08])
def test_a_wrong_prediction_reaches_what_the_whole_grid_would_have(optimum, cells):
    """Steps through the file's own grid are not counted as extensions of it."""
    whole = at(Tuner(cells, [], 1).run(Bowls(a=0.02, b=0.02, c=optimum).train), "c")
    choice = at(tuned(cells, Bowls(a=0.02, b=0.02, c=optimum)), "c")
    assert (choice.status, choice.chosen) == ("tuned", whole.chosen)


def test_a_prediction_beyond_the_grid_starts_at_its_end(cells):
    bowls = Bowls(a=0.02, b=0.0065, c=0.004)
    tuned(cells, bowls)
    assert bowls.rates("c") == pytest.approx([0.0025, 0.005, 0.01])


def test_the_choice_is_kept_with_its_prediction_and_stays(cells):
    choices = tuned(cells, Bowls(a=0.04, b=0.02, c=0.01))
    kept = from_json(json.loads(json.dumps(to_json(choices))))
    assert kept == choices
    later = Bowls(a=0.08, b=0.08, c=0.08)
    assert tuned(cells, later, kept) == choices
    assert tuple(later.rates("c")) == at(choices, "c").grid


def test_a_new_arm_is_tuned_on_the_values_of_the_others(cells):
    bowls = Bowls(a=0.04, b=0.02, c=0.01)
    first = [choice for choice in tuned(cells, bowls) if choice.arm == "baseline"]
    later = Bowls(a=0.04, b=0.02, c=0.01)
    both = tuned(cells, later, first)
    assert {choice.grid for choice in both if choice.rung == "c"} == {at(first, "c").grid}
    assert tuple(later.rates("c")) == at(first, "c").grid


def test_a_field_with_a_zero_starts_with_three_values_of_its_grid(sweep_text):
    tuned = "weight_decay: [0, 0.1, 0.2, 0.3], rungs: [a, b, c]"
    text = sweep_text.replace(*WITH_C).replace("learning_rate: [0.01, 0.02, 0.04], rungs: [a]", tuned)

    def train(_trials):
        return lambda trial: (trial.optimizer.weight_decay - 0.1) ** 2

    cells = expand(sweeps.loads(text), FACTS)
    choices = Tuner(cells, [], 1, predict_larger=True).run(train)
    assert at(choices, "c").grid == (0, 0.1, 0.2)
    assert at(choices, "c").chosen == pytest.approx(0.1)


def test_a_rung_stays_open_while_a_smaller_one_is(cells):
    tuner = Tuner(cells, [], 1, predict_larger=True)
    choices = tuner.run(Bowls(a=0.04, b=0.02, c=0.01).train, lambda trial: trial.model.shape.width == 16)
    assert {choice.rung for choice in choices} == {"a"}
    assert [cell.rung for group in tuner.waiting for cell in group.cells] == ["c", "c"]


OF_TWO_RUNGS, RUNGS, SEEDS = "learning_rate: [0.01, 0.02, 0.04]", "rungs: [a]", "seeds: [100]"


def warnings(before: str, after: str) -> list[str]:
    frozen = Tuner(expand(sweeps.loads(before), FACTS), [], extend=1).run(Bowls(a=0.02, b=0.02).train)
    return outdated(Tuner(expand(sweeps.loads(after), FACTS), frozen, extend=1))


def test_an_unchanged_file_gives_no_warning(sweep_text):
    assert warnings(sweep_text, sweep_text) == []


@pytest.mark.parametrize(
    ("was", "becomes", "where"),
    [
        (OF_TWO_RUNGS, "learning_rate: [0.01, 0.02, 0.04, 0.08, 0.16]", "learning_rate at a"),
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
    wider = sweep_text.replace(OF_TWO_RUNGS, "learning_rate: [0.005, 0.01, 0.02, 0.04, 0.08]")
    assert warnings(wider, sweep_text) == []


def test_values_that_a_prediction_spared_are_not_missed(cells):
    """Unless the file asks for the whole grid now."""
    frozen = tuned(cells, Bowls(a=0.02, b=0.02, c=0.02))
    assert outdated(Tuner(cells, frozen, 1, predict_larger=True)) == []
    (warning,) = outdated(Tuner(cells, frozen, 1))
    assert "learning_rate at c" in warning
