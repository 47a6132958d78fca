"""The identity of Gemma-style trials and of mixtures: golden ids, and what makes two of them one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from scalevec.model.config import (
    OF_ARCHITECTURE,
    ConfigurationError,
    Experts,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    Shape,
    Trial,
)
from scalevec.model.identity import digest, semantic_fields, trial_from_fields, trial_id
from scalevec.model.strategies import ATTENTION_INPUT_MAPS, PRESETS, ScaleVectorStrategy

EXPERTS = Experts(n_experts=4, top_k=2, feed_forward=44)
DENSE = Trial(
    model=ModelConfig(Shape(32, 2, heads=2, kv_heads=2, feed_forward=88), vocabulary_size=1024),
    optimizer=OptimizerConfig(learning_rate=0.016),
    schedule=ScheduleConfig(warmup_tokens=31_744),
    corpus="c0" * 32,
    sequence_length=128,
    batch_tokens=1024,
    tokens=401_408,
    seed=0,
)


def changed(**fields: object) -> Trial:
    return replace(DENSE, model=replace(DENSE.model, **fields))


def unified(**fields: object) -> Trial:
    return changed(scale_vectors=replace(PRESETS["unified"], **fields))  # type: ignore[arg-type]


TRIALS = {
    "gemma": changed(architecture="gemma"),
    "gemma, decay of input vectors": changed(architecture="gemma", scale_vectors=PRESETS["iwd"]),
    "gemma, unified": changed(architecture="gemma", scale_vectors=PRESETS["unified"]),
    "mixture": changed(experts=EXPERTS),
    "mixture, balanced by bias": changed(experts=replace(EXPERTS, balancing="bias")),
    "mixture, own vectors": changed(experts=EXPERTS, scale_vectors=ScaleVectorStrategy(experts="own")),
    "unified-light": changed(scale_vectors=PRESETS["unified-light"]),
    "unified-attention": changed(scale_vectors=PRESETS["unified-attention"]),
    "unified, own vectors in attention": unified(heterogeneous_maps=ATTENTION_INPUT_MAPS),
    "unified, vectors shared by heads": unified(heads="shared"),
    "unified, roles by map": unified(input_role_maps=("value", "up")),
    "gemma as it is": changed(architecture="gemma", **OF_ARCHITECTURE["gemma"]),
    "scaled embedding": changed(embedding_scale="sqrt-width"),
    "gains by their distance from one": changed(norm_gain="1+w"),
    "geglu": changed(activation="geglu"),
    "mixture, balanced by the mean over layers": changed(experts=replace(EXPERTS, over="mean")),
    "mixture, balanced over batches": changed(experts=replace(EXPERTS, per="batch")),
}
pytestmark = pytest.mark.kept

GOLDEN = {
    "gemma": "4b69bdba6b23859621e96d4f1007c517376cbb6e580f6019836d2a5be12e7cb7",
    "gemma, decay of input vectors": "aca70c2a1c86d875f3f4ff53710511b165abd56edbaf9b24444d21117f04212a",
    "gemma, unified": "635fd9a47159e45ff74b4210bc6f3f289b152e1f8e203ad6b0b56f34150ccba3",
    "mixture": "61144a815a01e81caf5054358ecf8da027280e7481e51fd4a070522bbc6556cb",
    "mixture, balanced by bias": "6305770056687fe4e4cd4c52a8a6ce22243963c9de4234057845e813f9c1416b",
    "mixture, own vectors": "429cb5ef732d0b902f1c3cdc0d351ff233f0223427ba7b68af5d493c99adbc6b",
    "unified-light": "82aca12c23881a46cafdf84efeaed7790100f8aff91d9bf2eed62186685d6cb3",
    "unified-attention": "1c05872ad4e34f911d9d528d5d891b9f058278933c71e0993f6b38f2c3e4d502",
    "unified, own vectors in attention": "1bb56bc67ae406e1062e2e46757fc1058143fa67a2fb6a7a143d0ce16335b96b",
    "unified, vectors shared by heads": "45d9605561e2538b8ffd529e206e584b69ef8e6d34b9eb5d765200bcdcfa7310",
    "unified, roles by map": "7afa03f3045b96ae1e3fd116c4b7fcf51c4a4930f4ddb80f4fcaecc134adc99f",
    "gemma as it is": "2cc18542ef2785342477ad14fda323dcc11c03a2a34861d688c1918b12fa65a1",
    "scaled embedding": "e066d99b7098208df7a711ccf1929c604c9b2a16178f1fa0fee0b44e987631ac",
    "gains by their distance from one": "a8e52a4b4a6f5b3bac89c89cbdc8a8554d0247db7613f19b1cb3d8722d0b9478",
    "geglu": "2c7e6076b8cbc83eabc79f9c5d0fa725d6141c1339d40fcb7dbba561819f5ed0",
    "mixture, balanced by the mean over layers": (
        "9f1d6b09b74888cba8dbe23c9edcc078c5793b88fb58547d7d7ac7adb633ffa8"
    ),
    "mixture, balanced over batches": "3d74d4a3431f527c269eb26bf39174f651e645b25c17803ba30984e147d4f1dd",
}


@pytest.mark.parametrize("name", TRIALS)
def test_an_identity_never_changes(name: str) -> None:
    assert trial_id(TRIALS[name]) == GOLDEN[name]


def test_every_one_is_another_trial() -> None:
    assert len({*GOLDEN.values(), trial_id(DENSE)}) == len(TRIALS) + 1


@pytest.mark.parametrize("name", TRIALS)
def test_the_kept_fields_give_the_trial_back(name: str) -> None:
    fields = semantic_fields(TRIALS[name])
    assert digest(fields) == GOLDEN[name]
    assert trial_id(trial_from_fields(fields)) == GOLDEN[name]


def test_a_dense_trial_knows_nothing_of_experts() -> None:
    assert "experts" not in semantic_fields(DENSE)["model"]
    expert_vectors = changed(scale_vectors=ScaleVectorStrategy(experts="own", router="none"))
    assert trial_id(expert_vectors) == trial_id(DENSE)


def test_decay_of_input_vectors_is_the_baseline_on_a_llama_only() -> None:
    assert trial_id(changed(scale_vectors=PRESETS["iwd"])) == trial_id(DENSE)
    assert GOLDEN["gemma, decay of input vectors"] != GOLDEN["gemma"]


@pytest.mark.parametrize("field", OF_ARCHITECTURE["gemma"])
def test_a_record_without_a_field_of_gemma_means_what_it_meant(field: str) -> None:
    assert field not in semantic_fields(TRIALS["gemma"])["model"]
    kept = trial_from_fields(semantic_fields(TRIALS["gemma"]))
    assert getattr(kept.model, field) == getattr(DENSE.model, field)


@pytest.mark.parametrize("preset", ["none", "er"])
def test_how_gains_are_stored_is_no_part_of_a_trial_in_which_it_cannot_matter(preset: str) -> None:
    strategy = PRESETS[preset]
    stored = changed(scale_vectors=strategy, norm_gain="1+w")
    assert trial_id(stored) == trial_id(changed(scale_vectors=strategy))


def test_how_a_loss_of_balance_is_taken_is_no_part_of_a_trial_without_one() -> None:
    by_bias = replace(EXPERTS, balancing="bias", over="mean", per="batch")
    assert trial_id(changed(experts=by_bias)) == GOLDEN["mixture, balanced by bias"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: changed(embedding_scale="width"), "embedding_scale is 'width'; allowed: none, sqrt-width"),
        (lambda: changed(norm_gain="w"), "norm_gain is 'w'; allowed: 1+w, g"),
        (lambda: changed(activation="relu"), "activation is 'relu'; allowed: geglu, swiglu"),
        (lambda: replace(EXPERTS, over="max"), "experts.over is 'max'; allowed: mean, sum"),
        (lambda: replace(EXPERTS, per="token"), "experts.per is 'token'; allowed: batch, sequence"),
    ],
)
def test_a_choice_that_does_not_exist_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert str(caught.value) == message
