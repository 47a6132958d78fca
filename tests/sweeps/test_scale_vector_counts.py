"""What scale vectors cost in parameters, from the closed forms, and the page that says so."""

import importlib.util
from dataclasses import replace
from types import ModuleType

import pytest

from scalevec.model.config import ARCHITECTURES
from scalevec.model.strategies import PRESETS
from support import CHECKOUT

DOCS = CHECKOUT / "docs"
TOOL = CHECKOUT / "tools" / "scale_vector_counts.py"
FROM_A_QUARTER_BILLION = ("0.25b", "0.5b", "1b", "2b")


@pytest.fixture(scope="module")
def counting() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale_vector_counts", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.kept
def test_the_page_is_what_the_command_writes(counting: ModuleType) -> None:
    assert (DOCS / "scale-vector-counts.md").read_text(encoding="utf-8") == counting.page()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", PRESETS)
def test_scale_vectors_are_below_a_thousandth_from_a_quarter_billion_up(
    counting: ModuleType, name: str, architecture: str
) -> None:
    for size in FROM_A_QUARTER_BILLION:
        for preset in (size, f"moe-{size}"):
            assert counting.share(counting.counts(preset, PRESETS[name], architecture)) < 1e-3


def test_vectors_of_every_expert_are_below_a_thousandth_too(counting: ModuleType) -> None:
    expert_vectors = replace(PRESETS["unified"], experts="own")
    for size in FROM_A_QUARTER_BILLION:
        assert counting.share(counting.counts(f"moe-{size}", expert_vectors)) < 1e-3


def test_the_baseline_of_the_1b_preset_is_the_papers(counting: ModuleType) -> None:
    actual = counting.counts("1b", PRESETS["baseline"])
    assert (actual.total, actual.scale_vectors) == (1_028_065_024, 80_640)


def test_unified_light_keeps_within_the_papers_count_and_the_others_do_not(counting: ModuleType) -> None:
    assert 7.0e-5 < counting.more("unified-light") <= 7.85e-5
    assert counting.more("unified-attention") == pytest.approx(8.1e-5, rel=0.005)
    assert counting.more("hg") == pytest.approx(1.15e-4, rel=0.005)
    assert counting.more("unified") == pytest.approx(4.35e-4, rel=0.01)
