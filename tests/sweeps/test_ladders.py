"""The presets, the defaults of inline shapes and mixtures, and the rules that make a ladder."""

import itertools
import math
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scalevec import sweeps
from scalevec.model.accounting import ParameterCounts, count_parameters
from scalevec.model.config import ConfigurationError, Experts, ModelConfig
from scalevec.sweeps import ladders
from scalevec.sweeps.expansion.expand import CorpusFacts, expand
from support import CHECKOUT

VOCABULARY = 50_304


def counts(name: str) -> ParameterCounts:
    size = ladders.PRESETS[name]
    return count_parameters(ModelConfig(size.shape, VOCABULARY, experts=size.experts))


@pytest.mark.parametrize(
    ("name", "n_params"), [("tiny-25k", 25_088), ("tiny-55k", 55_296), ("tiny-150k", 150_528)]
)
def test_a_preset_has_the_parameters_that_were_measured(name: str, n_params: int) -> None:
    shape = ladders.PRESETS[name].shape
    assert count_parameters(ModelConfig(shape, vocabulary_size=1024)).matrices == n_params
    assert shape.head_width == 16


# Presets


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("0.12b", 119_744_256),
        ("0.25b", 254_018_560),
        ("0.5b", 482_696_960),
        ("0.75b", 749_142_528),
        ("1b", 1_028_065_024),
    ],
)
def test_a_dense_preset_has_the_papers_parameters(name: str, total: int) -> None:
    assert counts(name).total == total
    assert ladders.PRESETS[name].shape.head_width == 64


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("moe-0.25b", 0.251, 0.114), ("moe-1b", 1.059, 0.355), ("moe-2b", 1.997, 0.621)],
)
def test_a_mixture_preset_has_the_papers_billions(name: str, total: float, active: float) -> None:
    counted = counts(name)
    assert (round(counted.total / 1e9, 3), round(counted.active / 1e9, 3)) == (total, active)
    assert ladders.PRESETS[name].shape.head_width == 64


@pytest.mark.parametrize("name", [name for name in ladders.PRESETS if name.startswith("tiny-")])
def test_every_tiny_preset_has_a_mixture_of_like_active_size(name: str) -> None:
    dense, mixture = counts(name), counts(f"moe-{name}")
    assert mixture.matrices == pytest.approx(dense.matrices, rel=0.08)
    assert mixture.matrices_total > 1.5 * mixture.matrices
    assert dense.matrices_total == dense.matrices


# Mixtures


@pytest.mark.parametrize(
    ("width", "given_experts", "experts", "feed_forward"),
    [
        (32, {"top_k": 2}, Experts(4, 2, 48), 96),
        (32, {"top_k": 2, "feed_forward": 10, "dense_layers": 1}, Experts(4, 2, 10, dense_layers=1), 88),
        (
            64,
            {"top_k": 2, "shared_experts": 1, "feed_forward": 10, "shared_feed_forward": 30},
            Experts(4, 2, 10, 1, shared_feed_forward=30),
            50,
        ),
    ],
    ids=["a share rounded up to eights", "dense layers keep their width", "a shared expert of its own width"],
)
def test_experts_have_the_width_that_is_given_or_their_share(width, given_experts, experts, feed_forward):
    size = ladders.size_of(width, 2, experts={"n_experts": 4} | given_experts)
    assert (size.experts, size.shape.feed_forward) == (experts, feed_forward)


def test_a_width_of_the_shared_expert_alone_is_refused() -> None:
    given = {"n_experts": 8, "top_k": 2, "shared_experts": 1, "shared_feed_forward": 30}
    with pytest.raises(ConfigurationError, match="feed_forward beside shared_feed_forward"):
        ladders.size_of(64, 2, experts=given)


# Ladders by rule


@settings(deadline=None, max_examples=60)
@given(st.floats(1e4, 1e11))
def test_a_generated_shape_comes_near_its_target(target: float) -> None:
    shape = ladders.shape_near(target)
    n_params = count_parameters(ModelConfig(shape, VOCABULARY)).matrices
    assert n_params == pytest.approx(target, rel=0.55 if target < 1e6 else 0.12)
    if target > 1e7:
        assert 45 < shape.width / shape.layers < 130


def test_a_ladder_has_equal_steps_from_end_to_end() -> None:
    rungs = ladders.generated(1e7, 2e9, 8)
    sizes = [count_parameters(ModelConfig(shape, VOCABULARY)).matrices for shape in rungs]
    assert sizes[0] == pytest.approx(1e7, rel=0.1)
    assert sizes[-1] == pytest.approx(2e9, rel=0.1)
    steps = [math.log(larger / smaller) for smaller, larger in itertools.pairwise(sizes)]
    assert steps == pytest.approx([math.log(200) / 7] * 7, rel=0.15)
    assert [ladders.name_of(size) for size in sizes][::7] == ["10.62m", "2.02b"]


def test_the_rules_of_batch_and_rate_are_those_of_deepseek_llm_at_20_tokens_a_parameter() -> None:
    compute = 6 * 20 * 1e9 * 1e9
    assert ladders.rule_learning_rate(10**9) == pytest.approx(0.3118 * compute**-0.125, rel=0.05)
    batch = ladders.rule_batch_tokens(10**9)
    assert batch == 2**20
    assert 0.7 < batch / (0.2920 * compute**0.3271) < 1.42


LADDER = """
name: x
ladder: {from: 1.0e7, to: 2.0e9, rungs: 4}
arms: {baseline: {}}
"""
CORPUS = CorpusFacts("f", VOCABULARY, 10**14)


def test_a_sweep_file_may_give_a_rule_and_resolves_to_its_rungs() -> None:
    sweep = sweeps.loads(LADDER)
    assert [rung.name for rung in sweep.ladder] == ["10.62m", "59.53m", "346.8m", "2.02b"]
    resolved = sweep.resolved()
    assert sweeps.loads(yaml.safe_dump(resolved)).resolved() == resolved


def test_batch_and_rate_are_the_rules_where_the_file_gives_none() -> None:
    cell = expand(sweeps.loads(LADDER), CORPUS)[0]
    assert (cell.template.batch_tokens, cell.template.optimizer.learning_rate) == (65_536, 0.003)


def test_a_rule_may_make_mixtures() -> None:
    text = LADDER.replace("rungs: 4", "rungs: 4, experts: {n_experts: 8, top_k: 2, balancing: bias}")
    dense, mixtures = (expand(sweeps.loads(item), CORPUS) for item in (LADDER, text))
    for plain, mixture in zip(dense, mixtures, strict=True):
        experts = mixture.template.model.experts
        assert (experts.n_experts, experts.balancing) == (8, "bias")
        assert mixture.n_params == pytest.approx(plain.n_params, rel=0.01)
        assert mixture.n_params == count_parameters(mixture.template.model).matrices


def test_an_inline_mixture_becomes_the_models() -> None:
    rung = "{name: m, width: 64, layers: 3, experts: {n_experts: 4, top_k: 1}}"
    text = f"name: x\nladder: [{rung}]\narms: {{a: {{}}}}"
    sweep = sweeps.loads(text)
    assert expand(sweep, CORPUS)[0].template.model.experts == Experts(4, 1, 176)
    resolved = sweep.resolved()
    assert sweeps.loads(yaml.safe_dump(resolved)).resolved() == resolved


RUNGS = """
name: x
corpus: {source: python-stdlib, sequence_length: 256}
ladder:
  - {name: tiny-25k, tokens: 8192}
  - {name: wide, width: 64, layers: 2, tokens: 16384, sequence_length: 64}
arms: {baseline: {}}
"""


def test_a_rung_may_have_its_own_budget_and_sequence_length() -> None:
    sweep = sweeps.loads(RUNGS)
    small, wide = (cell.template for cell in expand(sweep, CORPUS))
    assert (small.tokens, small.sequence_length, small.model.shape.width) == (8192, 256, 32)
    assert (wide.tokens, wide.sequence_length, wide.model.shape.width) == (16_384, 64, 64)
    assert sweeps.loads(yaml.safe_dump(sweep.resolved())).resolved() == sweep.resolved()


@pytest.mark.parametrize("change", [("tokens: 16384, ", ""), ("arms:", "tokens: [8192]\narms:")])
def test_budgets_of_some_rungs_or_beside_one_for_all_are_refused(change: tuple[str, str]) -> None:
    with pytest.raises(sweeps.SweepError, match=r"ladder\[0\].tokens: 8192; allowed: tokens at every rung"):
        sweeps.loads(RUNGS.replace(*change))


def test_the_examples_of_the_page_on_models_are_valid() -> None:
    page = CHECKOUT / "docs" / "models.md"
    examples = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [sweeps.loads(example).name for example in examples] == ["mixture", "by-rule"]
