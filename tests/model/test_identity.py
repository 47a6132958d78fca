"""The identity of a trial: golden ids that must never change, and the laws that identities obey.

Of dense trials, Gemma-style ones and mixtures.
"""

import hashlib
import json
import re
import string
from dataclasses import replace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from any_strategy import any_strategy
from golden_trial import TRIAL, arm, of_model
from scalevec.model.config import (
    ACTIVATIONS,
    ARCHITECTURES,
    EMBEDDING_SCALES,
    NORM_GAINS,
    OF_ARCHITECTURE,
    OPTIMIZERS,
    PRECISIONS,
    SCHEDULES,
    ConfigurationError,
    Experts,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    Shape,
    Trial,
)
from scalevec.model.fields import from_dict, to_dict
from scalevec.model.identity import digest, semantic_fields, stream_of, trial_from_fields, trial_id
from scalevec.model.optimization import OPTIONS as REGISTERED_OPTIONS
from scalevec.model.strategies import ATTENTION_INPUT_MAPS, PRESETS, ScaleVectorStrategy

pytestmark = pytest.mark.kept

STREAM = "578699669cb42d91f95fce828d7fd1dcd147988f3fd44b878136eb8df91e7752"
"""Of the trial above, as of every arm of its cell."""
GOLDEN = {
    "baseline": "fdbaf93d54eedf54580edb1f3cb34124c3867e5719609a02f4a0c7c73f3d005e",
    "none": "567719b4ec79d226ffbfc408f4a98b917b43a14e1e7539e88a834df0c2f11153",
    "hg": "fb98e25b3e5ec5675a33292127b7083951181b818361d37df03fb4f5468fb693",
    "or": "c436cc3f22e0c4fcce3b4fba84a6b36f7be4bfd225fdeeb03cd504bb9e27feb3",
    "er": "127d8664ba36a4d600772edf91eb95a7999cb7b17074f3c82d17c89404b55d42",
    "dp": "db26456a5cfc66dc2b6bc2df9ff137b0fd5a761ad534f61845707352dc1e6ed8",
    "unified": "e214cb283154934241fb74cc11c493b870828d27aeacae53db6de12f2f8709e5",
    "unified-dp": "db2c49e90882f1d3d4f139d5cdeb88b8c36075e6f8c12f730c3b549d949aa917",
    "another seed": "558f04951b7e3255f635ac35232870635d643f675c3a968bdfeaee3e39f7ae41",
    "bfloat16": "9673d1f03ef0feb1f5b6cefa5a24135096e34b6328d8269489fb0bf42e09ea7d",
    "no decay at all": "075fd1515633e6b00725011d64b5d8fa1e75d7ede2e184c94b755ac5391cf579",
    "evaluated on all": "ad57c3c84ce1ef615d0b56f9f63403e2c7d4a2ca7a34a9f6993480f1fba8b5cf",
    "unified in the baseline's cell": "65252cf8a75f4cb7f49bdf6c21024c029954aca12248423fb0f5424e0579a787",
    "grouped queries, tied": "876a192f36626ec0b0857b9fc777cfb75932999975e354fb57df9d264b41f271",
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
EXPERTS = Experts(n_experts=4, top_k=2, feed_forward=44)


def unified(**fields: object) -> Trial:
    return of_model(scale_vectors=replace(PRESETS["unified"], **fields))  # type: ignore[arg-type]


TRIALS = {
    **{name: arm(name) for name in PRESETS if name in GOLDEN},
    "another seed": replace(TRIAL, seed=1),
    "bfloat16": replace(TRIAL, precision="bfloat16"),
    "no decay at all": replace(TRIAL, optimizer=OptimizerConfig(learning_rate=0.016, weight_decay=0.0)),
    "evaluated on all": replace(TRIAL, evaluation_tokens=0),
    "unified in the baseline's cell": replace(arm("unified"), stream=STREAM),
    "grouped queries, tied": replace(
        TRIAL, model=replace(TRIAL.model, shape=Shape(64, 3, 4, 2, 176), tied_embeddings=True)
    ),
    "gemma": of_model(architecture="gemma"),
    "gemma, decay of input vectors": of_model(architecture="gemma", scale_vectors=PRESETS["iwd"]),
    "gemma, unified": of_model(architecture="gemma", scale_vectors=PRESETS["unified"]),
    "mixture": of_model(experts=EXPERTS),
    "mixture, balanced by bias": of_model(experts=replace(EXPERTS, balancing="bias")),
    "mixture, own vectors": of_model(experts=EXPERTS, scale_vectors=ScaleVectorStrategy(experts="own")),
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


@pytest.mark.parametrize("name", TRIALS)
def test_an_identity_never_changes(name: str) -> None:
    """A failure here means that every result that anyone kept is lost: change the code, not the id."""
    assert trial_id(TRIALS[name]) == GOLDEN[name]


def test_a_stream_never_changes() -> None:
    assert stream_of(TRIAL) == STREAM


def test_a_trial_says_the_stream_that_it_would_have_by_itself() -> None:
    assert trial_id(replace(TRIAL, stream=STREAM)) == trial_id(TRIAL)
    assert stream_of(replace(TRIALS["another seed"], stream=STREAM)) == STREAM


def test_every_golden_trial_is_another_trial() -> None:
    assert len(set(GOLDEN.values())) == len(TRIALS)


strategies = st.builds(replace, any_strategy, learning_rate_factor=st.floats(1e-3, 1e3))


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kv_heads, group, half = (draw(st.integers(1, 8)) for _ in range(3))
    heads = kv_heads * group
    return Shape(2 * half * heads, draw(st.integers(1, 99)), heads, kv_heads, draw(st.integers(1, 999)))


@st.composite
def optimizers(draw: st.DrawFn) -> OptimizerConfig:
    name = draw(st.sampled_from(list(OPTIMIZERS)))
    given = {
        option: draw(st.floats(0.0, 0.999))
        for option in ("beta1", "beta2", "momentum")
        if option in OPTIMIZERS[name].options and draw(st.booleans())
    }
    rate, decay = draw(st.floats(1e-9, 10.0)), draw(st.floats(0.0, 10.0))
    return OptimizerConfig(name, rate, decay, **given)


@st.composite
def schedules(draw: st.DrawFn, tokens: int, batch_tokens: int) -> ScheduleConfig:
    name = draw(st.sampled_from(list(SCHEDULES)))
    room = tokens - (max(round(0.2 * tokens / batch_tokens), 1) * batch_tokens if name == "wsd" else 0)
    warmup = draw(st.integers(min(1, room) if name == "inverse-sqrt" else 0, room))
    given = (
        {"final_fraction": draw(st.floats(0.0, 1.0))} if "final_fraction" in SCHEDULES[name].options else {}
    )
    return ScheduleConfig(name, warmup, **given)


@st.composite
def trials(draw: st.DrawFn) -> Trial:
    sequence_length, sequences, steps = (draw(st.integers(1, 500)) for _ in range(3))
    tokens = sequence_length * sequences * steps
    return Trial(
        model=draw(
            st.builds(
                ModelConfig,
                shape=shapes(),
                vocabulary_size=st.integers(2, 10**6),
                scale_vectors=strategies,
                tied_embeddings=st.booleans(),
                norm_epsilon=st.floats(1e-12, 1.0),
                rope_base=st.floats(1.0, 1e7),
                architecture=st.sampled_from(ARCHITECTURES),
                embedding_scale=st.sampled_from(EMBEDDING_SCALES),
                norm_gain=st.sampled_from(NORM_GAINS),
                activation=st.sampled_from(ACTIVATIONS),
            )
        ),
        optimizer=draw(optimizers()),
        schedule=draw(schedules(tokens, sequence_length * sequences)),
        corpus=draw(st.text(string.hexdigits, min_size=64, max_size=64)),
        sequence_length=sequence_length,
        batch_tokens=sequence_length * sequences,
        tokens=tokens,
        seed=draw(st.integers(0, 2**63 - 1)),
        precision=draw(st.sampled_from(PRECISIONS)),
        evaluation_tokens=draw(st.integers(0, 10**9)),
        stream=draw(st.sampled_from(["", "ab" * 32])),
    )


@given(trials())
def test_a_trial_survives_the_way_through_a_file(trial: Trial) -> None:
    assert from_dict(Trial, json.loads(json.dumps(to_dict(trial)))) == trial


@given(trials())
def test_the_kept_fields_give_back_the_identity(trial: Trial) -> None:
    kept = json.loads(json.dumps(semantic_fields(trial)))
    assert trial_id(trial_from_fields(kept)) == trial_id(trial)


@given(trials(), trials())
def test_two_trials_share_an_identity_only_if_they_differ_in_no_semantic_field(trial, other):
    same = semantic_fields(trial) == semantic_fields(other)
    assert (trial_id(trial) == trial_id(other)) == same


def test_the_canonical_json_is_sorted_ascii_without_spaces() -> None:
    text = '{"a":[1,2.5,true,null],"b":"\\u00e9"}'
    assert digest({"b": "é", "a": [1, 2.5, True, None]}) == hashlib.sha256(text.encode()).hexdigest()


def test_a_number_that_is_none_has_no_digest() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        digest({"a": float("nan")})


def changes() -> dict[str, Trial]:
    """The golden trial with each semantic field in turn at another value."""
    model, optimizer, schedule = TRIAL.model, TRIAL.optimizer, TRIAL.schedule
    return {
        "width": of_model(shape=Shape(64, 2, 2, 2, 88)),
        "layers": of_model(shape=replace(model.shape, layers=3)),
        "heads": of_model(shape=replace(model.shape, heads=4, kv_heads=2)),
        "kv_heads": of_model(shape=replace(model.shape, kv_heads=1)),
        "feed_forward": of_model(shape=replace(model.shape, feed_forward=96)),
        "vocabulary_size": of_model(vocabulary_size=2048),
        "tied_embeddings": of_model(tied_embeddings=True),
        "norm_epsilon": of_model(norm_epsilon=1e-6),
        "rope_base": of_model(rope_base=5e5),
        "learning_rate": replace(TRIAL, optimizer=replace(optimizer, learning_rate=0.008)),
        "weight_decay": replace(TRIAL, optimizer=replace(optimizer, weight_decay=0.2)),
        "beta1": replace(TRIAL, optimizer=replace(optimizer, beta1=0.95)),
        "beta2": replace(TRIAL, optimizer=replace(optimizer, beta2=0.99)),
        "epsilon": replace(TRIAL, optimizer=replace(optimizer, epsilon=1e-6)),
        "clip_norm": replace(TRIAL, optimizer=replace(optimizer, clip_norm=2.0)),
        "warmup_tokens": replace(TRIAL, schedule=replace(schedule, warmup_tokens=0)),
        "final_fraction": replace(TRIAL, schedule=replace(schedule, final_fraction=0.0)),
        "corpus": replace(TRIAL, corpus="c1" * 32),
        "sequence_length": replace(TRIAL, sequence_length=64),
        "batch_tokens": replace(TRIAL, batch_tokens=2048),
        "tokens": replace(TRIAL, tokens=1024 * 393),
        "seed": replace(TRIAL, seed=1),
        "precision": replace(TRIAL, precision="bfloat16"),
        "evaluation_tokens": replace(TRIAL, evaluation_tokens=0),
        "scale_vectors": arm("unified"),
        "architecture": of_model(architecture="gemma"),
        "embedding_scale": of_model(embedding_scale="sqrt-width"),
        "norm_gain": of_model(norm_gain="1+w"),
        "activation": of_model(activation="geglu"),
    }


OPTIONS = {
    "schedule": (("wsd", {"cooldown_fraction": 0.3, "cooldown": "1-sqrt", "final_fraction": 0.1}),),
    "optimizer": (
        ("sgd", {"momentum": 0.9, "nesterov": True}),
        (
            "muon",
            {"newton_schulz_steps": 6, "update_scale": "original", "adamw_rate_factor": 0.1, "momentum": 0.9},
        ),
        ("soap", {"preconditioner_steps": 5}),
        ("adafactor", {"decay_exponent": 0.7, "update_clip": 2.0}),
        ("ademamix", {"beta3": 0.999, "alpha": 8.0, "slow_warmup_steps": 100}),
    ),
}
"""Options of some optimizers and schedules, at other values than their defaults."""


@pytest.mark.parametrize("part", OPTIONS)
def test_an_option_is_part_of_the_identity_of_those_that_take_it(part: str) -> None:
    for name, options in OPTIONS[part]:
        kind = type(getattr(TRIAL, part))
        choices = [{}, *({option: value} for option, value in options.items())]
        ids = {trial_id(replace(TRIAL, **{part: kind(name=name, **given)})) for given in choices}
        assert len(ids) == len(choices)


@pytest.mark.parametrize("config", [OptimizerConfig, ScheduleConfig])
def test_a_declared_option_has_the_type_of_its_default(config: Any) -> None:
    hints = get_type_hints(config)
    declared = {name: hints[name] for name in REGISTERED_OPTIONS if name in hints}
    assert declared == {name: type(REGISTERED_OPTIONS[name].default) | None for name in declared}


@pytest.mark.parametrize("part", OPTIONS)
def test_an_option_that_is_not_taken_stays_out_of_the_identity(part: str) -> None:
    foreign = {option for _, options in OPTIONS[part] for option in options} - {"final_fraction"}
    assert not foreign & semantic_fields(TRIAL)[part].keys()


@pytest.mark.parametrize("field", changes())
def test_a_semantic_field_is_part_of_the_identity(field: str) -> None:
    assert trial_id(changes()[field]) != GOLDEN["baseline"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": True}, "seed is True; allowed: a value of type int"),
        ({"sed": 1}, "sed is 1; allowed: no such field"),
        (
            {"optimizer": {"learning_rate": "1"}},
            "optimizer.learning_rate is '1'; allowed: a value of type float",
        ),
    ],
)
def test_kept_fields_that_are_wrong_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}"):
        from_dict(Trial, to_dict(TRIAL) | values)


def test_a_kept_trial_without_a_field_is_refused() -> None:
    fields = to_dict(TRIAL)
    del fields["corpus"]
    with pytest.raises(ConfigurationError, match="corpus is None; allowed: a value"):
        from_dict(Trial, fields)


@pytest.mark.parametrize("name", changes())
def test_a_stream_follows_from_all_fields_but_budget_and_rate(name: str) -> None:
    same = stream_of(changes()[name]) == STREAM
    assert same == (name in ("tokens", "learning_rate"))


def test_of_a_schedule_with_a_course_of_its_own_only_that_and_the_warm_up_make_the_stream() -> None:
    def of(*schedule: object, **options: object) -> str:
        return stream_of(replace(TRIAL, schedule=ScheduleConfig(*schedule, **options)))

    wsd = of("wsd", 1024)
    assert wsd == of("wsd", 1024, cooldown_fraction=0.4) == of("constant", 1024)
    assert wsd not in (of("wsd", 2048), of("inverse-sqrt", 1024), of("cosine", 1024))


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
