"""The identity of Gemma-style trials and of mixtures: golden ids, and what makes two of them one."""

from dataclasses import replace

import pytest

from scalevec.model.config import Experts, ModelConfig, OptimizerConfig, ScheduleConfig, Shape, Trial
from scalevec.model.identity import digest, semantic_fields, trial_from_fields, trial_id
from scalevec.model.strategies import PRESETS, ScaleVectorStrategy

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


TRIALS = {
    "gemma": changed(architecture="gemma"),
    "gemma, decay of input vectors": changed(architecture="gemma", scale_vectors=PRESETS["iwd"]),
    "gemma, unified": changed(architecture="gemma", scale_vectors=PRESETS["unified"]),
    "mixture": changed(experts=EXPERTS),
    "mixture, balanced by bias": changed(experts=replace(EXPERTS, balancing="bias")),
    "mixture, own vectors": changed(experts=EXPERTS, scale_vectors=ScaleVectorStrategy(experts="own")),
    "unified-light": changed(scale_vectors=PRESETS["unified-light"]),
}
pytestmark = pytest.mark.kept

GOLDEN = {
    "gemma": "4b13882f0d0783c94aa7aba8066b5a6d46b179c9e4876f8d30af7ce13fb4c72b",
    "gemma, decay of input vectors": "dfc24fe98e77d1474bbfdecade804e088a07eb5c678971bb545cc5d1d6d727a7",
    "gemma, unified": "ad6891fce613a37864ea4271488c073d1d8afb38dd75423f688705164a7396f2",
    "mixture": "4d0710941d1ba2de3b4ecb763f656d8e9c8c056149a494e6f88e9f2e5642c14b",
    "mixture, balanced by bias": "574409ceed722ea0dcc92111593512159cca7624f37bd2be6842799f4a4f2fe1",
    "mixture, own vectors": "6424251c3ffe85901f06dc233da5c63ebdf9302d279960889bf24ed36c96e48a",
    "unified-light": "539393e99efb97f729eb38e9b1260a3d58501584e3ae386c67a1cd117d6182ed",
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
