"""The sweep files that come with the project: those of the paper's sizes, and their small siblings."""

import paper
import pytest
import yaml

from scalevec import sweeps
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CorpusFacts
from support import CHECKOUT

PAPER = sorted((CHECKOUT / "sweeps" / "paper").glob("*.yaml"))
SMALL = sorted((CHECKOUT / "sweeps" / "small").glob("*.yaml"))


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_sweep_of_the_papers_size_can_be_planned_before_its_text_is_there(path):
    sweep = sweeps.load(path, look_for_files=False)
    assert expand(sweep, CorpusFacts("", sweep.corpus.vocabulary, 10**15))


def test_without_its_text_it_is_not_run():
    with pytest.raises(sweeps.SweepError, match="no such file"):
        sweeps.load(PAPER[0])


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


def test_the_packages_of_a_corpus_are_those_that_the_project_pins():
    packages = sweeps.load(CHECKOUT / "sweeps" / "small" / "trend.yaml").corpus.packages
    pins = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").lower().splitlines()
    assert packages
    assert [name for name in packages if name.lower() not in pins] == []


def test_every_sweep_file_of_the_project_is_shipped_under_its_name():
    names = sweeps.shipped_names()
    assert {"quickstart", "simulate", "paper/main", "small/main"} <= set(names)
    assert {sweeps.shipped(name).resolve() for name in names} == set((CHECKOUT / "sweeps").rglob("*.yaml"))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("quickstrat", "quickstart"), ("main", "paper/main, small/main"), ("large/decay", "paper/decay")],
)
def test_a_name_that_is_not_shipped_is_refused_with_the_nearest(name, nearest):
    with pytest.raises(FileNotFoundError, match=f"no sweep called '{name}' is shipped; nearest: {nearest}"):
        sweeps.shipped(name)
