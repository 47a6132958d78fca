"""From sections of a sweep file to cells of trials."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from scalevec import sweeps
from scalevec.model.identity import trial_id
from scalevec.sweeps.expansion.expand import Cell, CorpusFacts, arms_of_other_budgets, expand
from scalevec.sweeps.expansion.trials import evaluated_tokens, whole_batches

Cells = Callable[..., list[Cell]]


def identities(cells: list[Cell]) -> set[str]:
    return {trial_id(cell.trial(seed)) for cell in cells for seed in cell.seeds}


def test_the_product_of_all_lists_is_run(cells_of: Cells) -> None:
    cells = cells_of(
        ladder=["tiny-25k", "tiny-55k"],
        tokens_per_parameter=[10, 20],
        arms={"a": {}, "b": {"tied_embeddings": True}},
        grid={"weight_decay": [0.0, 0.1, 0.2], "beta2": [0.9, 0.95]},
        seeds=[1, 2, 3],
    )
    assert len(cells) == 2 * 2 * 2 * 3 * 2
    assert len(identities(cells)) == 3 * len(cells)


def test_zipped_lists_advance_together(cells_of: Cells) -> None:
    cells = cells_of(zip={"beta1": [0.8, 0.9], "beta2": [0.9, 0.99]}, grid={"clip_norm": [1.0, 2.0]})
    actual = [(cell.setting["beta1"], cell.setting["beta2"], cell.setting["clip_norm"]) for cell in cells]
    assert sorted(actual) == [(0.8, 0.9, 1.0), (0.8, 0.9, 2.0), (0.9, 0.99, 1.0), (0.9, 0.99, 2.0)]


PARTS: dict[str, dict[str, Any]] = {
    "optimizer": {"learning_rate": 0.5, "weight_decay": 0.25, "beta1": 0.7, "beta2": 0.8, "clip_norm": 3.0},
    "schedule": {"warmup_tokens": 512, "final_fraction": 0.2},
    "model": {"tied_embeddings": True, "norm_epsilon": 1e-6, "rope_base": 500.0, "architecture": "gemma"},
}


def test_every_trial_field_reaches_the_trial(cells_of: Cells) -> None:
    of_trial = {"batch_tokens": 256, "sequence_length": 64, "precision": "bfloat16"}
    strategy = {"scale_vectors": {"preset": "hg", "weight_decay": "none"}}
    fields = {name: value for part in PARTS.values() for name, value in part.items()}
    trial = cells_of(trial=of_trial | strategy | fields, arms={"a": {}})[0].template
    assert {name: getattr(trial, name) for name in of_trial} == of_trial
    for part, values in PARTS.items():
        assert {name: getattr(getattr(trial, part), name) for name in values} == values
    vectors = trial.model.scale_vectors
    assert (vectors.branches, vectors.weight_decay) == ("heterogeneous", "none")


def test_an_arm_overrules_what_all_trials_share(cells_of: Cells) -> None:
    cells = cells_of(trial={"weight_decay": 0.1}, arms={"a": {}, "b": {"weight_decay": 0.0}})
    assert [cell.template.optimizer.weight_decay for cell in cells] == [0.1, 0.0]


def test_tokens_follow_from_n_without_scale_vectors_in_whole_batches(cells_of: Cells) -> None:
    arms = {name: {"scale_vectors": name} for name in ("none", "unified")}
    trial = {"batch_tokens": 3000, "sequence_length": 100}
    cells = cells_of(arms=arms, tokens_per_parameter=[16], trial=trial)
    assert {(cell.n_params, cell.template.tokens) for cell in cells} == {(25_088, 134 * 3000)}


def test_the_warm_up_is_a_fraction_of_the_tokens_in_whole_batches(cells_of: Cells) -> None:
    trial = cells_of(trial={"warmup_fraction": 0.5})[0].template
    assert trial.schedule.warmup_tokens == whole_batches(trial.tokens / 2, trial.batch_tokens)


def test_the_batch_is_eight_sequences_unless_given(cells_of: Cells) -> None:
    cells = cells_of(corpus={"sequence_length": 64}, grid={"sequence_length": [32, 128]})
    assert [cell.template.batch_tokens for cell in cells] == [256, 1024]


def test_a_trial_is_evaluated_on_what_is_given_else_four_million_tokens_as_far_as_there_are(cells_of, corpus):
    given, left_out = (cells_of(trial=fields)[0].template for fields in ({"evaluation_tokens": 1000}, {}))
    facts = replace(corpus, held_out_tokens=(600, 5000))
    assert left_out.evaluation_tokens == 4_000_000
    assert evaluated_tokens(given, facts) == 1600
    assert evaluated_tokens(replace(given, evaluation_tokens=0), facts) == 5600


def test_optimizers_with_options_are_told_apart_in_the_setting(cells_of: Cells) -> None:
    cells = cells_of(optimizers=["adamw", {"name": "adamw", "beta2": 0.99}])
    assert [cell.setting["optimizer"] for cell in cells] == ["adamw", "adamw(beta2=0.99)"]
    assert [cell.template.optimizer.beta2 for cell in cells] == [0.95, 0.99]


def test_a_strategy_in_a_grid_is_named_in_the_setting(cells_of: Cells) -> None:
    listed = ["hg", {"preset": "hg", "reparameterization": "or"}]
    cells = cells_of(arms={"a": {}}, grid={"scale_vectors": listed})
    assert [cell.setting["scale_vectors"] for cell in cells] == ["hg", "hg(reparameterization=or)"]


def test_only_tuned_rungs_have_tuning_seeds(cells_of: Cells) -> None:
    tune = {"learning_rate": [0.02, 0.01], "rungs": ["tiny-25k"], "seeds": [7]}
    cells = cells_of(ladder=["tiny-25k", "tiny-55k"], tune=tune)
    assert [cell.tune_seeds for cell in cells] == [(7,), ()]
    assert all(cell.tune_grid == {"learning_rate": (0.01, 0.02)} for cell in cells)


def test_a_trial_of_a_cell_has_its_seed_and_its_tuned_fields(cells_of: Cells) -> None:
    cell = cells_of()[0]
    trial = cell.trial(5, learning_rate=0.25, warmup_fraction=1)
    expected = (5, 0.25, trial.tokens)
    assert (trial.seed, trial.optimizer.learning_rate, trial.schedule.warmup_tokens) == expected
    assert trial.model == cell.template.model


def test_trials_of_all_tuned_batches_train_on_the_same_tokens(cells_of: Cells) -> None:
    tune = {"batch_tokens": [512, 1024, 3072], "seeds": [100], "extend": 1}
    cell = cells_of(tune=tune, trial={"batch_tokens": 1024})[0]
    trials = [cell.trial(0, batch_tokens=batch) for batch in (512, 1024, 3072, 9216)]
    assert {trial.tokens for trial in (*trials, cell.template)} == {cell.template.tokens}
    assert [trial.batch_tokens for trial in trials] == [512, 1024, 3072, 9216]


def test_batches_that_no_budget_can_be_whole_ones_of_are_refused(cells_of: Cells) -> None:
    with pytest.raises(sweeps.SweepError, match="have the least common multiple 1,280,000"):
        cells_of(tune={"batch_tokens": [12800, 1280000], "seeds": [100], "extend": 0}, seeds=[0])


@pytest.mark.parametrize(
    ("rule", "n_left"),
    [
        ({"arm": "a", "rung": "tiny-25k"}, 12),
        ({"rung": ["tiny-25k", "tiny-55k"], "seed": 1}, 8),
        ({"seed": [0, 1], "arm": "b", "beta2": 0.9}, 12),
        ({"optimizer": "adamw", "schedule": "cosine", "seed": 0}, 8),
    ],
)
def test_exclude_drops_what_matches_all_its_fields(rule, n_left, cells_of):
    sections: dict[str, Any] = {
        "ladder": ["tiny-25k", "tiny-55k"],
        "arms": {"a": {}, "b": {"tied_embeddings": True}},
        "grid": {"beta2": [0.9, 0.95]},
    }
    assert sum(len(cell.seeds) for cell in cells_of(**sections)) == 16
    assert sum(len(cell.seeds) for cell in cells_of(**sections, exclude=[rule])) == n_left


def test_exclude_can_drop_one_stage(cells_of: Cells) -> None:
    tune = {"learning_rate": [0.01, 0.02]}
    arms: dict[str, Any] = {"a": {}, "b": {"tied_embeddings": True}}
    cells = cells_of(arms=arms, tune=tune, exclude=[{"arm": "a", "stage": "tuning"}])
    assert [(cell.seeds, cell.tune_seeds) for cell in cells] == [((0, 1), ()), ((0, 1), (100,))]


def test_arms_whose_budgets_differ_are_told_that_they_make_no_pairs(cells_of: Cells) -> None:
    arms: dict[str, Any] = {"small": {"batch_tokens": 1024}, "large": {"batch_tokens": 4096}}
    (warning,) = arms_of_other_budgets(cells_of(arms=arms, tokens_per_parameter=20))
    assert "tiny-25k: the budgets of the arms differ (small 501,760 tokens, large 499,712 tokens)" in warning
    assert arms_of_other_budgets(cells_of(arms=arms, tokens=[409_600])) == []


def test_a_tuning_grid_is_refused_where_a_small_rung_cannot_have_it(cells_of: Cells) -> None:
    tune = {"warmup_tokens": [100_000, 600_000], "rungs": ["tiny-25k", "tiny-150k"]}
    with pytest.raises(sweeps.SweepError, match=r"tune\.warmup_tokens: 600000; allowed: at most the trained"):
        cells_of(ladder=["tiny-25k", "tiny-150k"], tokens_per_parameter=16, tune=tune)


def test_permuting_the_keys_of_the_file_changes_no_identity(quickstart: str, corpus: CorpusFacts) -> None:
    data = yaml.safe_load(quickstart.replace("8.0e-3, 1.6e-2, 3.2e-2", "0.008, 0.016, 0.032"))
    expected = identities(expand(sweeps.loads(quickstart), corpus))
    generator = random.Random(0)
    for _ in range(5):
        text = yaml.safe_dump(shuffled(data, generator), sort_keys=False)
        assert identities(expand(sweeps.loads(text), corpus)) == expected


def shuffled(value: Any, generator: random.Random) -> Any:
    if not isinstance(value, dict):
        return value
    keys = generator.sample(list(value), len(value))
    return {key: shuffled(value[key], generator) for key in keys}


def test_names_and_labels_change_no_identity(quickstart: str, corpus: CorpusFacts) -> None:
    renamed = quickstart.replace("name: quickstart", "name: other").replace("unified:", "ours:")
    first, second = (identities(expand(sweeps.loads(text), corpus)) for text in (quickstart, renamed))
    assert first == second


def test_numbers_that_are_equal_have_one_identity(cells_of: Cells) -> None:
    written = [0, 0.0, -0.0]
    actual = [identities(cells_of(trial={"weight_decay": value})) for value in written]
    assert actual[0] == actual[1] == actual[2]


SCALARS = {
    "tokens_per_parameter": 16,
    "optimizers": {"name": "adamw", "beta2": 0.99},
    "schedules": "cosine",
    "seeds": 3,
    "ladder": "tiny-55k",
    "grid": {"beta1": 0.8},
    "measure": {"what": "sharpness"},
}


def test_one_value_stands_for_the_list_of_it(cells_of: Cells) -> None:
    tune = {"learning_rate": [0.01, 0.02], "seeds": 7, "rungs": "tiny-55k"}
    lists: dict[str, Any] = {name: [value] for name, value in SCALARS.items()}
    lists |= {"grid": {"beta1": [0.8]}, "measure": {"what": ["sharpness"]}}
    cells = cells_of(**SCALARS, tune=tune)
    assert cells == cells_of(**lists, tune=tune | {"seeds": [7], "rungs": ["tiny-55k"]})
    assert [(cell.seeds, cell.tune_seeds) for cell in cells] == [((3,), (7,))]
