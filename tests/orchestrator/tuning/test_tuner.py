"""Tuning decided on planted bowls: no training, only what the tuner asks for and what it concludes."""

import json
import math
from dataclasses import asdict, replace
from itertools import chain

import pytest

from scalevec import sweeps
from scalevec.orchestrator.tuning.tuner import Tuner
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CorpusFacts
from simulations import Silent, simulated

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
        trials = chain.from_iterable(self.asked)
        of_arm = [trial for trial in trials if trial.model.scale_vectors.branches == branches]
        return sorted({trial.optimizer.learning_rate for trial in of_arm})


@pytest.fixture
def cells(sweep_text):
    return expand(sweeps.loads(sweep_text), FACTS)


def chosen(choices, arm, rung):
    return next(choice for choice in choices if (choice.arm, choice.rung) == (arm, rung))


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


def test_an_optimum_still_at_the_edge_is_censored(cells):
    bowls = Bowls(baseline=1.0)
    choices = Tuner(cells, [], extend=1).run(bowls.train)
    choice = chosen(choices, "baseline", "a")
    assert (choice.status, choice.chosen, choice.vertex) == ("censored", 0.08, None)
    assert chosen(choices, "none", "a").status == "tuned"
    assert chosen(choices, "baseline", "b").status == "censored"


def test_a_diverged_cell_counts_as_infinitely_bad(cells):
    bowls = Bowls(baseline=0.05, diverges_above=0.03)
    choice = chosen(Tuner(cells, [], extend=1).run(bowls.train), "baseline", "a")
    assert choice.losses[-1] is None
    assert choice.chosen == 0.02
    assert choice.vertex is None


def test_where_everything_diverged_the_choice_is_censored(cells):
    bowls = Bowls(diverges_above=0.0)
    assert chosen(Tuner(cells, [], extend=1).run(bowls.train), "none", "a").status == "censored"


def test_an_untuned_rung_gets_a_carried_rate(cells):
    choice = chosen(Tuner(cells, [], extend=1).run(Bowls(baseline=0.02).train), "baseline", "b")
    assert (choice.status, choice.grid) == ("carried", ())
    assert choice.chosen == pytest.approx(2 ** (round(4 * math.log2(0.02)) / 4))


SHARED = ("tune: {", "tune: {share: reference, ")


def test_values_that_the_reference_shares_are_tuned_for_it_alone(sweep_text):
    bowls = Bowls(baseline=0.05, none=0.02)
    cells = expand(sweeps.loads(sweep_text.replace(*SHARED)), FACTS)
    tuner = Tuner(cells, [], extend=1)
    choices = tuner.run(bowls.train)
    assert {choice.arm for choice in choices} == {"baseline"}
    assert (bowls.rates("shared"), bowls.rates("none")) == ([0.01, 0.02, 0.04, 0.08], [])
    taken = {(cell.arm, cell.rung): tuner.of(cell)["learning_rate"].chosen for cell in cells}
    assert all(taken["none", rung] == taken["baseline", rung] for rung in "ab")


def test_an_arm_cannot_share_the_values_of_a_reference_that_is_left_out_beside_it(sweep_text):
    text = sweep_text.replace(*SHARED) + "\nexclude: [{arm: baseline, rung: b}]\n"
    with pytest.raises(sweeps.SweepError, match=r"tune.share: baseline has no trial at b as none has there"):
        sweeps.loads(text)


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


def test_a_larger_rung_gets_the_values_of_an_arm_that_was_renamed(cells, sweep_text):
    frozen = Tuner(cells, [], extend=1).run(Bowls(none=0.03).train)
    of_rung_a = [choice for choice in frozen if choice.rung == "a"]
    text = sweep_text.replace("  none:", "  renamed:")
    choices = Tuner(expand(sweeps.loads(text), FACTS), of_rung_a, extend=1).run(Bowls().train)
    assert chosen(choices, "renamed", "b").chosen == chosen(frozen, "none", "b").chosen


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
    vertices = {c.field: c.vertex for c in choices if (c.arm, c.rung) == ("none", "a")}
    assert vertices == {"learning_rate": pytest.approx(0.02), "weight_decay": pytest.approx(0.11)}


def tuned_on(sweep_text, field, values, loss, extend=0):
    """The choices of a sweep that tunes ``field`` over ``values``, where ``loss`` is of that field."""
    text = sweep_text.replace("learning_rate: [0.01, 0.02, 0.04]", f"{field}: {values}")
    cells = expand(sweeps.loads(text), FACTS)
    asked = []

    def train(trials):
        asked.extend(trial for _, trial in trials)
        return lambda trial: 3 + loss(trial)

    return Tuner(cells, [], extend=extend).run(train), asked


def test_decay_is_tuned_with_zero_in_its_grid(sweep_text):
    def loss(trial):
        return (trial.optimizer.weight_decay - 0.12) ** 2

    choices, _ = tuned_on(sweep_text, "weight_decay", "[0.0, 0.1, 0.2]", loss)
    choice = chosen(choices, "baseline", "a")
    assert (choice.status, choice.axis) == ("tuned", "linear")
    assert choice.vertex == pytest.approx(0.12)
    assert choice.chosen == 0.125
    assert chosen(choices, "baseline", "b").chosen == 0.125


def test_no_decay_at_all_is_the_end_of_its_range_and_not_censored(sweep_text):
    choices, asked = tuned_on(
        sweep_text, "weight_decay", "[0.0, 0.1, 0.2]", lambda trial: trial.optimizer.weight_decay, extend=2
    )
    choice = chosen(choices, "baseline", "a")
    assert (choice.status, choice.chosen, choice.vertex, choice.extensions) == ("tuned", 0.0, None, 0)
    assert {trial.optimizer.weight_decay for trial in asked} == {0.0, 0.1, 0.2}


def test_a_number_of_the_scale_vectors_is_tuned_and_left_alone_in_an_arm_without_them(sweep_text):
    field = "scale_vectors.learning_rate_factor"
    text = sweep_text.replace("learning_rate: [0.01, 0.02, 0.04]", f"{field}: [0.5, 1, 2]")
    cells = expand(sweeps.loads(text), FACTS)

    def loss(trial):
        strategy = trial.model.canonical_strategy()
        return 3.0 if strategy.branches == "none" else math.log2(strategy.learning_rate_factor) ** 2

    tuner = Tuner(cells, [], extend=1)
    tuner.run(lambda _: loss)
    by_arm = {cell.arm: tuner.of(cell)[field] for cell in cells if cell.tune_seeds}
    expected = {("baseline", "tuned", 1.0, 0), ("none", "tuned", 0.5, 0)}
    assert {(arm, c.status, c.chosen, c.extensions) for arm, c in by_arm.items()} == expected
    carried = next(cell for cell in cells if (cell.arm, cell.rung) == ("baseline", "b"))
    assert carried.trial(0, **{field: 4.0}).model.scale_vectors.learning_rate_factor == 4.0
    assert tuner.of(carried)[field].status == "carried"


def test_a_beta_is_tuned_by_what_it_lacks_of_one(sweep_text):
    def loss(trial):
        return math.log2((1 - trial.optimizer.beta2) / 0.012) ** 2

    choices, asked = tuned_on(sweep_text, "beta2", "[0.9, 0.95, 0.975]", loss, extend=1)
    choice = chosen(choices, "none", "a")
    assert sorted({trial.optimizer.beta2 for trial in asked}) == [0.9, 0.95, 0.975, 0.9875]
    assert (choice.status, choice.axis) == ("censored", "log(1-x)")
    choices, _ = tuned_on(sweep_text, "beta2", "[0.9, 0.95, 0.975]", loss, extend=2)
    choice = chosen(choices, "none", "a")
    assert (choice.status, choice.vertex) == ("tuned", pytest.approx(1 - 0.012))
    assert math.log2(1 - choice.chosen) * 4 == pytest.approx(round(math.log2(0.012) * 4))


def test_a_warm_up_grows_no_further_than_the_run(sweep_text):
    """From 0.4 the next step is 0.8, and then the whole run."""
    choices, asked = tuned_on(
        sweep_text, "warmup_fraction", "[0.2, 0.4]", lambda trial: -trial.schedule.warmup_tokens, extend=9
    )
    choice = chosen(choices, "baseline", "a")
    assert (choice.status, choice.chosen, choice.extensions) == ("tuned", 1.0, 2)
    assert max(trial.schedule.warmup_tokens / trial.tokens for trial in asked) == 1.0


def test_a_grid_does_not_grow_to_what_no_trial_can_have(sweep_text):
    """A warm-up of more than the cooldown leaves: the optimum is at the edge, and censored."""
    text = sweep_text.replace("seeds: [0, 1]", "seeds: [0, 1]\nschedules: [wsd]")
    choices, _ = tuned_on(
        text, "warmup_fraction", "[0.3, 0.6]", lambda trial: -trial.schedule.warmup_tokens, extend=9
    )
    choice = chosen(choices, "baseline", "a")
    assert (choice.status, choice.chosen, choice.grid) == ("censored", 0.6, (0.3, 0.6))


def test_a_whole_number_is_chosen_among_those_that_were_tried(sweep_text):
    def loss(trial):
        return math.log2(trial.batch_tokens / 300) ** 2

    choices, _ = tuned_on(sweep_text, "batch_tokens", "[128, 256, 512]", loss)
    choice = chosen(choices, "baseline", "a")
    assert (choice.chosen, choice.vertex) == (256, pytest.approx(300))
    assert chosen(choices, "baseline", "b").chosen == 256


BRANCHES = """\
tokens_per_parameter: [4, 8]
schedules: [wsd]
"""


class OfBudgets(Bowls):
    """A larger budget has a lower best rate: 0.04 for 4 tokens per parameter, 0.01 for 8, of all arms."""

    def loss(self, trial):
        shortest = min(item.tokens for asked in self.asked for item in asked)
        optimum = 0.04 if trial.tokens == shortest else 0.01
        return 3 + 0.1 * math.log2(trial.optimizer.learning_rate / optimum) ** 2


def budgets_of(sweep_text, warmup):
    text = sweep_text.replace("tokens_per_parameter: [4]\n", BRANCHES)
    text = text.replace("batch_tokens: 256", f"batch_tokens: 256, {warmup}")
    return [cell for cell in expand(sweeps.loads(text), FACTS) if cell.rung == "a"]


def test_budgets_that_could_share_a_trunk_have_one_choice(sweep_text):
    bowls = OfBudgets()
    choices = Tuner(budgets_of(sweep_text, "warmup_tokens: 512"), [], extend=0).run(bowls.train)
    assert {choice.chosen for choice in choices} == {2 ** (round(4 * math.log2(0.02)) / 4)}
    assert {choice.status for choice in choices} == {"tuned"}
    rates = (0.01, 0.02, 0.04)
    losses = [3 + 0.05 * (math.log2(rate / 0.04) ** 2 + math.log2(rate / 0.01) ** 2) for rate in rates]
    assert choices[0].losses == pytest.approx(losses)
    assert len(choices) == 4


def test_budgets_without_a_common_trunk_have_a_choice_each(sweep_text):
    choices = Tuner(budgets_of(sweep_text, "warmup_fraction: 0.25"), [], extend=0).run(OfBudgets().train)
    expected = {(4.0, 0.04), (8.0, 0.01)}
    assert {(choice.setting["tokens_per_parameter"], choice.chosen) for choice in choices} == expected


def test_a_new_budget_is_tuned_beside_frozen_ones(sweep_text):
    both = budgets_of(sweep_text, "warmup_tokens: 512")
    short = [cell for cell in both if cell.setting["tokens_per_parameter"] == 4]
    frozen = Tuner(short, [], extend=0).run(OfBudgets().train)
    bowls = OfBudgets()
    choices = Tuner(both, frozen, extend=0).run(bowls.train)
    assert frozen[0] in choices
    assert len(choices) == 4


class AtRungs:
    """A bowl for each rung, by the width; keeps what was asked of the larger one."""

    def __init__(self, **optima):
        self.optima = {16: optima["a"], 32: optima["b"]}
        self.diverges_above = optima.get("diverges_above", math.inf)
        self.asked = []

    def train(self, trials):
        self.asked += [(cell.arm, trial) for cell, trial in trials if trial.model.shape.width == 32]
        return self.loss

    def loss(self, trial):
        width, rate = trial.model.shape.width, trial.optimizer.learning_rate
        diverges = width == 32 and rate > self.diverges_above
        return math.inf if diverges else 3 + 0.1 * math.log2(rate / self.optima[width]) ** 2


def test_a_carried_rate_is_checked_by_a_step_to_each_side(cells):
    bowls = AtRungs(a=0.02, b=0.022)
    choice = chosen(Tuner(cells, [], extend=1, checked_arms=["baseline"]).run(bowls.train), "baseline", "b")
    rates = [trial.optimizer.learning_rate for _, trial in bowls.asked]
    assert rates == pytest.approx([choice.chosen / 2, choice.chosen, 2 * choice.chosen])
    assert {(arm, trial.seed) for arm, trial in bowls.asked} == {("baseline", 100)}
    assert (choice.check.status, choice.check.gain, choice.check.grid[1]) == ("inside", 0.0, choice.chosen)
    assert choice.check.vertex == pytest.approx(0.022)
    assert choice.status == "carried"


@pytest.mark.parametrize(("optimum", "side"), [(0.005, "below"), (0.08, "above")])
def test_an_optimum_beyond_a_carried_rate_is_said_with_what_it_is_worth(optimum, side, cells):
    tuner = Tuner(cells, [], extend=1, checked_arms=["baseline"])
    choice = chosen(tuner.run(AtRungs(a=0.02, b=optimum).train), "baseline", "b")
    low, centre, high = choice.check.losses
    assert choice.check.status == side
    assert choice.check.gain == centre - min(low, high) > 0
    assert choice.check.vertex is None


@pytest.mark.parametrize(
    ("diverges_above", "status", "gain"),
    [(0.015, "below", None), (0.03, "inside", 0.0), (0, "diverged", None)],
)
def test_a_check_that_diverges_is_not_a_number(diverges_above, status, gain, cells):
    train = AtRungs(a=0.02, b=0.02, diverges_above=diverges_above).train
    choice = chosen(Tuner(cells, [], extend=1, checked_arms=["baseline"]).run(train), "baseline", "b")
    assert (choice.check.status, choice.check.gain, choice.check.losses[2]) == (status, gain, None)
    assert json.dumps(asdict(choice.check), allow_nan=False)


def test_a_check_is_frozen_with_its_choice_and_asked_for_later_changes_none(cells):
    unchecked = Tuner(cells, [], extend=1).run(AtRungs(a=0.02, b=0.05).train)
    bowls = AtRungs(a=0.02, b=0.05)
    checked = Tuner(cells, unchecked, extend=1, checked_arms=["baseline"]).run(bowls.train)
    assert [choice.chosen for choice in checked] == [choice.chosen for choice in unchecked]
    assert len(bowls.asked) == 3
    again = Tuner(cells, checked, extend=1, checked_arms=["baseline"])
    later = AtRungs(a=0.02, b=0.001)
    assert again.run(later.train) == checked
    assert later.asked == []
    assert len(again.check_trials()) == 3


def test_a_largest_rung_that_was_tuned_needs_no_check(sweep_text):
    cells = expand(sweeps.loads(sweep_text.replace("rungs: [a]", "rungs: [a, b]")), FACTS)
    assert Tuner(cells, [], extend=1, checked_arms=["baseline"]).to_check == []


def test_an_arm_that_no_rung_will_be_tuned_for_is_refused_before_anything_is_trained(cells):
    Tuner(cells, [], extend=1).require_sources()
    without = [replace(c, tune_seeds=()) if c.arm == "none" else c for c in cells]
    with pytest.raises(ValueError, match="arm none has no tuned rung"):
        Tuner(without, [], extend=1).require_sources()
    chosen = Tuner(cells, [], extend=1).run(Bowls().train)
    Tuner(without, chosen, extend=1).require_sources()


TUNE = {"learning_rate": [0.002, 0.004, 0.008], "rungs": ["small"], "extend": 1}


def test_an_edge_and_the_choices_are_announced_once_with_arm_rung_and_values(tmp_path, monkeypatch):
    messages: list[str] = []
    monkeypatch.setattr(Silent, "message", lambda _, text: messages.append(text))
    sections = {"tune": TUNE, "simulate": {"learning_rate": {"optimum": 0.02, "at": 1e5}}}
    simulated(tmp_path / "runs", **sections)
    [edge] = [text for text in messages if "at the edge" in text]
    assert edge.startswith("tuning small adamw cosine tokens_per_parameter=20: best learning rate of ")
    assert edge.endswith(" at the edge (0.008 of 0.002..0.008): grid of all arms gets 0.016")
    small, large = [message for message in messages if message.startswith("chosen learning rate at ")]
    assert small.startswith("chosen learning rate at small adamw cosine tokens_per_parameter=20: baseline ")
    assert "(censored), unified " in small
    assert large.startswith("chosen learning rate at large ")
    messages.clear()
    simulated(tmp_path / "runs", **sections)
    assert not [message for message in messages if message.startswith(("chosen", "tuning small"))]
