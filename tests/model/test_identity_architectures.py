"""The identity of Gemma-style trials and of mixtures: golden ids, and what makes two of them one."""

from dataclasses import replace

import pytest

from golden_trial import TRIAL, of_model
from scalevec.model.config import (
    OF_ARCHITECTURE,
    Experts,
    Trial,
)
from scalevec.model.identity import digest, semantic_fields, trial_from_fields, trial_id
from scalevec.model.strategies import ATTENTION_INPUT_MAPS, PRESETS, ScaleVectorStrategy

EXPERTS = Experts(n_experts=4, top_k=2, feed_forward=44)


def unified(**fields: object) -> Trial:
    return of_model(scale_vectors=replace(PRESETS["unified"], **fields))  # type: ignore[arg-type]


TRIALS = {
    "gemma": of_model(architecture="gemma"),
    "gemma, decay of input vectors": of_model(architecture="gemma", scale_vectors=PRESETS["iwd"]),
    "gemma, unified": of_model(architecture="gemma", scale_vectors=PRESETS["unified"]),
    "mixture": of_model(experts=EXPERTS),
    "mixture, balanced by bias": of_model(experts=replace(EXPERTS, balancing="bias")),
    "mixture, own vectors": of_model(experts=EXPERTS, scale_vectors=ScaleVectorStrategy(experts="own")),
    "unified-light": of_model(scale_vectors=PRESETS["unified-light"]),
    "unified-attention": of_model(scale_vectors=PRESETS["unified-attention"]),
    "unified, own vectors in attention": unified(heterogeneous_maps=ATTENTION_INPUT_MAPS),
    "unified, vectors shared by heads": unified(heads="shared"),
    "unified, roles by map": unified(input_role_maps=("value", "up")),
    "gemma as it is": of_model(architecture="gemma", **OF_ARCHITECTURE["gemma"]),
    "scaled embedding": of_model(embedding_scale="sqrt-width"),
    "gains by their distance from one": of_model(norm_gain="1+w"),
    "geglu": of_model(activation="geglu"),
    "mixture, balanced by the mean over layers": of_model(experts=replace(EXPERTS, over="mean")),
    "mixture, balanced over batches": of_model(experts=replace(EXPERTS, per="batch")),
}
pytestmark = pytest.mark.kept

GOLDEN = {
    "gemma": "d0bb9f2b2129def04262a558ad32e4b643557c031fb16002bfc127dc9a8929da",
    "gemma, decay of input vectors": "eaa2dc74e343a80da24c4e43bc9b7c9bd73ee4890ba962a2e1e77b66f9f63ee5",
    "gemma, unified": "ed3ab585ec464dc89a1b7e459388558e4a4b28a3b4a64581218ab808d339af3f",
    "mixture": "7501138467bd8c0ba2a63eac7a90d9db7fff31d22586b3320400b9f080abdd3d",
    "mixture, balanced by bias": "a008de84698022fe768da26d700f756caeddf2ba8453bcf78b9930b7aecbfe8b",
    "mixture, own vectors": "b5c734a1ed89d548a4b00586a500e0cfded9c1b74283d60be1bda9355ba3ba72",
    "unified-light": "e3bf995b93c9b0a459eccc7d2d89f3cc567ac154d789e1eb6976746c72483a00",
    "unified-attention": "c945c2ef0035ba48b173e47dbddb4b25d8ed6c9256e20410c90629da94495406",
    "unified, own vectors in attention": "4b4c3ebef2f73ed78b6d83dce2b7001b344aa2ea17a551be4f40bce8abb929fa",
    "unified, vectors shared by heads": "f4be19a4200fdedb2b30d7a4c5794c29d3886b02ec810de8c8dd9ec4cde39a6d",
    "unified, roles by map": "682c4ac8f26babf64aee219146ec1d918fac36d1ebfd63ecdba616808f4fe80b",
    "gemma as it is": "2f25e54bbdd2c4a7dd2ed5f6bcd2eb4f5e2de0ff91d87be3ab303df922dea99e",
    "scaled embedding": "908c1743ef0452ffc794b41885caa2622567a2f48b1fed1063f4612c4ed88671",
    "gains by their distance from one": "29972475621cfc5854c8215e71e864f9506e1ac2290811d39346fe46595c862a",
    "geglu": "70b3483c0ac1ceab5e7833837fb75be1b6394ab6418a5e3cbbaca7e8d0c145b2",
    "mixture, balanced by the mean over layers": (
        "02ce453f879672f4262cb7a6274e94136a554e8bf3462097d61ea83962016d08"
    ),
    "mixture, balanced over batches": "67f80bde8cd082a1d62e5b9c0a08a1f1cb13a7fd0d3ba81d9df0f190fdf13da0",
}


@pytest.mark.parametrize("name", TRIALS)
def test_an_identity_never_changes(name: str) -> None:
    assert trial_id(TRIALS[name]) == GOLDEN[name]


def test_every_one_is_another_trial() -> None:
    assert len({*GOLDEN.values(), trial_id(TRIAL)}) == len(TRIALS) + 1


@pytest.mark.parametrize("name", TRIALS)
def test_the_kept_fields_give_the_trial_back(name: str) -> None:
    fields = semantic_fields(TRIALS[name])
    assert digest(fields) == GOLDEN[name]
    assert trial_id(trial_from_fields(fields)) == GOLDEN[name]


def test_a_dense_trial_knows_nothing_of_experts() -> None:
    assert "experts" not in semantic_fields(TRIAL)["model"]
    expert_vectors = of_model(scale_vectors=ScaleVectorStrategy(experts="own", router="none"))
    assert trial_id(expert_vectors) == trial_id(TRIAL)


def test_decay_of_input_vectors_is_the_baseline_on_a_llama_only() -> None:
    assert trial_id(of_model(scale_vectors=PRESETS["iwd"])) == trial_id(TRIAL)
    assert GOLDEN["gemma, decay of input vectors"] != GOLDEN["gemma"]


@pytest.mark.parametrize("field", OF_ARCHITECTURE["gemma"])
def test_a_record_without_a_field_of_gemma_means_what_it_meant(field: str) -> None:
    assert field not in semantic_fields(TRIALS["gemma"])["model"]
    kept = trial_from_fields(semantic_fields(TRIALS["gemma"]))
    assert getattr(kept.model, field) == getattr(TRIAL.model, field)


@pytest.mark.parametrize("preset", ["none", "er"])
def test_how_gains_are_stored_is_no_part_of_a_trial_in_which_it_cannot_matter(preset: str) -> None:
    strategy = PRESETS[preset]
    stored = of_model(scale_vectors=strategy, norm_gain="1+w")
    assert trial_id(stored) == trial_id(of_model(scale_vectors=strategy))


def test_how_a_loss_of_balance_is_taken_is_no_part_of_a_trial_without_one() -> None:
    by_bias = replace(EXPERTS, balancing="bias", over="mean", per="batch")
    assert trial_id(of_model(experts=by_bias)) == GOLDEN["mixture, balanced by bias"]
