"""The sweep files that come with the project: those of the paper's sizes, and their small siblings."""

import importlib.util
from pathlib import Path

import pytest
import yaml

import sweeps
from sweeps.expand import expand
from sweeps.trials import CorpusFacts

CHECKOUT = Path(__file__).resolve().parents[2]
PAPER = sorted((CHECKOUT / "sweeps" / "paper").glob("*.yaml"))
SMALL = sorted((CHECKOUT / "sweeps" / "small").glob("*.yaml"))

_spec = importlib.util.spec_from_file_location("paper", CHECKOUT / "docs" / "paper.py")
assert _spec is not None
assert _spec.loader is not None
paper = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(paper)


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_sweep_of_the_papers_size_can_be_planned_before_its_text_is_there(path):
    sweep = sweeps.load(path, look_for_files=False)
    assert expand(sweep, CorpusFacts("", sweep.corpus.vocabulary, 10**15))


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_without_its_text_it_is_not_run(path):
    with pytest.raises(sweeps.SweepError, match="no such file"):
        sweeps.load(path)


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_a_small_sweep_names_its_tables_and_has_a_cut_that_loads(path):
    assert path.stem in paper.TABLES
    whole = sweeps.load(path)
    cut = sweeps.loads(yaml.safe_dump(paper.cut(yaml.safe_load(path.read_text()))))
    assert cut.name == whole.name.replace("small", "smoke")
    assert cut.reference == whole.reference
    assert len(cut.arms) == 2


def test_every_small_sweep_that_is_run_exists():
    assert {path.stem for path in SMALL} == set(paper.TABLES)
