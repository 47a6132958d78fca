"""What the heads of the paper's sweeps and their page say, is what they are planned as."""

import importlib.util
from types import ModuleType
from typing import Any

import pytest

from kept_text import difference_beyond_rounding
from support import CHECKOUT

FOLDER = CHECKOUT / "sweeps" / "paper"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
SMALLEST_EFFECT = {"removal": 0.028, "removal-tuned": 0.015, "ablation": 0.04}
"""What the paper gives, nats/token; of the others 0.016, with Muon and WSD at 0.5B."""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("paper_sweeps", CHECKOUT / "tools" / "paper_sweeps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def plans(tool: ModuleType) -> dict[str, Any]:
    return {name: tool.PaperSweep.of(name) for name in tool.ORDER}


def test_the_page_has_every_sweep(tool: ModuleType) -> None:
    assert sorted(tool.ORDER) == NAMES


@pytest.mark.kept
@pytest.mark.parametrize("name", NAMES)
def test_the_head_of_a_sweep_says_what_it_detects_and_takes(plans: dict[str, Any], name: str) -> None:
    kept = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert not difference_beyond_rounding(kept, plans[name].with_head())


@pytest.mark.kept
def test_the_page_is_what_the_command_writes(tool: ModuleType, plans: dict[str, Any]) -> None:
    kept = (CHECKOUT / "docs" / "paper-sweeps.md").read_text(encoding="utf-8")
    assert not difference_beyond_rounding(kept, tool.page(list(plans.values())))


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"overhead", "theory"}))
def test_a_design_sees_the_papers_effect_even_at_twice_the_noise(plans: dict[str, Any], name: str) -> None:
    design = plans[name].power.design
    assert design.range[1] < SMALLEST_EFFECT.get(name, 0.016)


def test_main_ends_within_two_weeks_on_64_gpus(plans: dict[str, Any]) -> None:
    assert plans["main"].hours / 24 / 64 < 14
