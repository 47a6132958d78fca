"""Tuning decided on planted bowls: no training, only what the tuner asks for and what it concludes."""

import math
from dataclasses import replace

import pytest

import sweeps
from orchestrator.tuner import Tuner
from sweeps import CorpusFacts
from sweeps.expand import expand

FACTS = CorpusFacts("f" * 64, 1024, 10_000_000)


class Bowls:
    """Answers as training would, a parabola in log(rate) for each arm; keeps what was asked."""

    def __init__(self, baseline=0.02, none=0.02, diverges_above=math.inf):
        self.optimum = {"shared": baseline, "none": none}
        self.diverges_above = diverges_above
        self.asked = []

    def train(self, trials):
        self.asked.append([trial for _, trial in trials])
        return self.loss

    def loss(self, trial):
        rate = trial.optimizer.learning_rate
        if rate > self.diverges_above:
            return math.inf
        optimum = self.optimum[trial.model.scale_vectors.branches]
        return 3 + 0.1 * math.log2(rate / optimum) ** 2

    def rates(self, branches):
        trials = [trial for asked in self.asked for trial in asked]
        own = [trial for trial in trials if trial.model.scale_vectors.branches == branches]
        return sorted({trial.optimizer.learning_rate for trial in own})


@pytest.fixture
def cells(sweep_text):
    return expand(sweeps.loads(sweep_text), FACTS)


def chosen(choices, arm, rung):
    return next(choice for choice in choices if (choice.arm, choice.rung) == (arm, rung))


def test_every_arm_gets_the_same_grid(cells):
    bowls = Bowls()
    Tuner(cells, [], extend=1).run(bowls.train)
    assert bowls.rates("shared") == bowls.rates("none") == [0.01, 0.02, 0.04]


def test_an_optimum_inside_the_grid_is_the_rounded_vertex(cells):
    choice = chosen(Tuner(cells, [], extend=1).run(Bowls(baseline=0.023).train), "baseline", "a")
    assert choice.status == "tuned"
    assert choice.vertex == pytest.approx(0.023)
    assert choice.chosen == pytest.approx(2 ** (round(4 * math.log2(0.023)) / 4))


def test_an_optimum_at_the_edge_extends_the_grid_of_all_arms(cells):
    bowls = Bowls(baseline=0.05, none=0.02)
    choices = Tuner(cells, [], extend=1).run(bowls.train)
    assert bowls.rates("shared") == bowls.rates("none") == [0.01, 0.02, 0.04, 0.08]
    assert chosen(choices, "baseline", "a").status == "tuned"
    assert chosen(choices, "baseline", "a").extensions == 1


def test_the_low_edge_extends_downwards(cells):
    bowls = Bowls(none=0.006)
    Tuner(cells, [], extend=1).run(bowls.train)
    assert bowls.rates("shared") == [0.005, 0.01, 0.02, 0.04]


def test_an_optimum_still_at_the_edge_is_censored(cells):
    bowls = Bowls(baseline=1.0)
    choices = Tuner(cells, [], extend=1).run(bowls.train)
    found = chosen(choices, "baseline", "a")
    assert (found.status, found.chosen, found.vertex) == ("censored", 0.08, None)
    assert chosen(choices, "none", "a").status == "tuned"
    assert chosen(choices, "baseline", "b").status == "censored"


def test_a_diverged_cell_counts_as_infinitely_bad(cells):
    bowls = Bowls(baseline=0.05, diverges_above=0.03)
    found = chosen(Tuner(cells, [], extend=1).run(bowls.train), "baseline", "a")
    assert found.losses[-1] is None
    assert found.chosen == 0.02
    assert found.vertex is None


def test_where_everything_diverged_the_choice_is_censored(cells):
    bowls = Bowls(diverges_above=0.0)
    assert chosen(Tuner(cells, [], extend=1).run(bowls.train), "none", "a").status == "censored"


def test_an_untuned_rung_gets_a_carried_rate(cells):
    found = chosen(Tuner(cells, [], extend=1).run(Bowls(baseline=0.02).train), "baseline", "b")
    assert (found.status, found.grid) == ("carried", ())
    assert found.chosen == pytest.approx(2 ** (round(4 * math.log2(0.02)) / 4))


def test_frozen_choices_do_not_move(cells):
    frozen = Tuner(cells, [], extend=1).run(Bowls(baseline=0.02).train)
    assert Tuner(cells, frozen, extend=1).run(Bowls(baseline=0.035).train) == frozen


def test_a_new_seed_moves_no_choice_and_asks_for_no_new_tuning(cells, sweep_text):
    frozen = Tuner(cells, [], extend=1).run(Bowls(baseline=0.05).train)
    more = expand(sweeps.loads(sweep_text.replace("seeds: [0, 1]", "seeds: [0, 1, 2]")), FACTS)
    bowls = Bowls(baseline=0.05)
    assert Tuner(more, frozen, extend=1).run(bowls.train) == frozen
    assert bowls.rates("shared") == [0.01, 0.02, 0.04, 0.08]


def test_a_new_arm_is_tuned_beside_frozen_ones(cells, sweep_text):
    frozen = Tuner(cells, [], extend=1).run(Bowls().train)
    text = sweep_text.replace("tune:", "  hg: {scale_vectors: hg}\ntune:")
    more = expand(sweeps.loads(text), FACTS)
    bowls = Bowls()
    bowls.optimum["heterogeneous"] = 0.03
    choices = Tuner(more, frozen, extend=1).run(bowls.train)
    assert [choice for choice in choices if choice.arm != "hg"] == frozen
    assert chosen(choices, "hg", "a").status == "tuned"


def test_a_grid_that_changed_in_the_file_moves_no_frozen_choice(cells, sweep_text):
    frozen = Tuner(cells, [], extend=1).run(Bowls().train)
    changed = expand(sweeps.loads(sweep_text.replace("[0.01, 0.02, 0.04]", "[0.1, 0.2, 0.4]")), FACTS)
    bowls = Bowls()
    kept = Tuner(changed, frozen, extend=1).run(bowls.train)
    assert [choice.chosen for choice in kept] == [choice.chosen for choice in frozen]


def test_tuning_sees_its_own_seeds_only(cells):
    bowls = Bowls()
    Tuner(cells, [], extend=1).run(bowls.train)
    assert {trial.seed for trials in bowls.asked for trial in trials} == {100}


def test_two_fields_are_tuned_along_the_lines_through_the_best_point(sweep_text):
    text = sweep_text.replace("rungs: [a]", "weight_decay: [0.05, 0.1, 0.2], rungs: [a]")
    cells = expand(sweeps.loads(text), FACTS)

    def loss(trial):
        rate, decay = trial.optimizer.learning_rate, trial.optimizer.weight_decay
        return 3 + math.log2(rate / 0.02) ** 2 + math.log2(decay / 0.11) ** 2

    choices = Tuner(cells, [], extend=0).run(lambda trials: loss)
    found = {c.field: c.vertex for c in choices if (c.arm, c.rung) == ("none", "a")}
    assert found == {"learning_rate": pytest.approx(0.02), "weight_decay": pytest.approx(0.11)}


def test_an_arm_without_a_tuned_rung_is_refused(cells):
    without = [replace(c, tune_seeds=()) if c.arm == "none" else c for c in cells]
    with pytest.raises(ValueError, match="arm none has no tuned rung"):
        Tuner(without, [], extend=1).run(Bowls().train)
