"""The identity of Gemma-style trials and of mixtures: golden ids, and what makes two of them one."""

from dataclasses import replace

import pytest

from scalevec.model.config import Experts, ModelConfig, OptimizerConfig, ScheduleConfig, Shape, Trial
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
