"""What the heads of the paper's sweeps and their page say, is what they are planned as."""

from collections.abc import Callable
from functools import cache
from typing import Any

import paper_sweeps
import pytest

from kept_text import difference_beyond_rounding
from support import CHECKOUT

pytestmark = pytest.mark.slow
FOLDER = CHECKOUT / "sweeps" / "paper"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
SMALLEST_EFFECT = {"removal": 0.028, "removal-tuned": 0.015, "ablation": 0.0245, "decay": 0.0192}
"""What the paper gives, nats/token; of the others 0.0148, at 1B with AdamW and a cosine."""


@pytest.fixture(scope="module")
def plan() -> Callable[[str], Any]:
    """The plan of a sweep, which takes up to a minute and is made once."""
    return cache(paper_sweeps.PaperSweep.of)


def test_the_page_has_every_sweep() -> None:
    assert sorted(paper_sweeps.ORDER) == NAMES


@pytest.mark.kept
@pytest.mark.parametrize("name", NAMES)
def test_the_head_of_a_sweep_says_what_it_detects_and_takes(plan: Callable[[str], Any], name: str) -> None:
    kept = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert not difference_beyond_rounding(kept, plan(name).with_head())


@pytest.mark.kept
def test_the_page_is_what_the_command_writes(plan: Callable[[str], Any]) -> None:
    kept = (CHECKOUT / "docs" / "paper-sweeps.md").read_text(encoding="utf-8")
    page = paper_sweeps.page([plan(name) for name in paper_sweeps.ORDER])
    assert not difference_beyond_rounding(kept, page)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"overhead", "theory", "as-run", "as-run-moe"}))
def test_a_design_sees_the_papers_effect_even_at_twice_the_noise(plan, name):
    design = plan(name).power.design
    assert design.range[1] < SMALLEST_EFFECT.get(name, 0.0148)


@pytest.mark.parametrize(("name", "gpus"), [("node", 8), ("main", 64)])
def test_a_design_ends_within_two_weeks_on_its_gpus(plan: Callable[[str], Any], name: str, gpus: int) -> None:
    assert plan(name).hours / 24 / gpus < 14


@pytest.mark.parametrize("name", ["as-run", "as-run-moe"])
def test_what_the_paper_ran_is_ten_runs_of_its_sizes_and_a_grid_for_the_baseline(plan, name):
    rows = plan(name).rows
    tuning = [row for row in rows if row["stage"] == "tuning"]
    assert len({row["rung"] for row in rows}) == 5
    assert (len(tuning), {row["arm"] for row in tuning}, len(rows) - len(tuning)) == (35, {"baseline"}, 10)
