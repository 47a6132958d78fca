"""What scale vectors cost in parameters, from the closed forms, and the page that says so."""

import importlib.util
from types import ModuleType

import pytest

from scalevec.model.config import ARCHITECTURES
from scalevec.model.strategies import PRESETS
from support import CHECKOUT

DOCS = CHECKOUT / "docs"
TOOL = CHECKOUT / "tools" / "scale_vector_counts.py"
FROM_A_QUARTER_BILLION = ("0.25b", "0.5b", "0.75b", "1b")


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
        assert counting.share(counting.counts(size, PRESETS[name], architecture)) < 1e-3


def test_the_1b_preset_has_the_papers_vectors(counting: ModuleType) -> None:
    assert counting.counts("1b", PRESETS["baseline"]).scale_vectors == 80_640
