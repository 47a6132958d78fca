"""The README and the pages beside it show what kept results say, and what they show is valid."""

import math
import re
import shutil
import subprocess
import sys

import pytest
import regenerate
import typer

from kept_text import difference_beyond_rounding
from scalevec import sweeps
from scalevec.analysis.registry import FIGURES, LAWS, TABLES
from scalevec.model.optimization import OPTIMIZERS, SCHEDULES
from scalevec.model.strategies import PRESETS
from scalevec.orchestrator.cli.app import application
from scalevec.orchestrator.executors.profiles import load_profile
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.sweeps.expansion.expand import expand
from scalevec.sweeps.expansion.trials import CorpusFacts
from support import CHECKOUT

README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
MOST_WORDS = 1_000
CONTRACT = "from contracts.executor_contract import *"


def test_the_readme_is_one_page():
    assert len(README.split()) <= MOST_WORDS


@pytest.mark.kept
@pytest.mark.parametrize(
    ("page", "name", "computed_by"),
    [("README.md", "answer", "answer"), ("docs/demo.md", "quickstart", "block")],
)
def test_what_pages_show_of_kept_results_is_what_is_computed_from_them(page, name, computed_by):
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    computed = regenerate.with_block(text, name, getattr(regenerate, computed_by)())
    assert difference_beyond_rounding(text, computed) == ""


@pytest.mark.kept
def test_the_figures_are_those_of_the_kept_results(tmp_path):
    regenerate.draw(tmp_path)
    for name in regenerate.SHOWN:
        kept = (regenerate.FIGURES / f"{name}.svg").read_text(encoding="utf-8")
        drawn = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        assert difference_beyond_rounding(kept, drawn) == "", name


SWEEP_FILE = (CHECKOUT / "docs" / "sweep-file.md").read_text(encoding="utf-8")


def test_the_sweep_file_of_the_page_is_valid_and_has_as_many_trials_as_it_says(tmp_path):
    [example] = re.findall(r"```yaml\n(.*?)```", SWEEP_FILE, flags=re.DOTALL)
    sweep = sweeps.loads(example, "sweep-file.md", tmp_path)
    cells = expand(sweep, CorpusFacts("", sweep.corpus.vocabulary, 10**15))
    comparison = sum(len(cell.seeds) for cell in cells)
    tuning = sum(len(cell.tune_seeds) * math.prod(map(len, cell.tune_grid.values())) for cell in cells)
    assert f"lists its {tuning + comparison} trials" in SWEEP_FILE


def test_the_sweep_and_the_profile_of_the_readme_are_valid(tmp_path):
    sweep, profile = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "train.py").write_text("")
    assert sweeps.loads(sweep, "README.md", tmp_path).name == "decay"
    (tmp_path / "profiles.yaml").write_text(profile)
    assert load_profile("mycluster", tmp_path, trust=None).executor == "slurm"


def test_the_python_example_of_the_readme_runs_on_the_kept_results(tmp_path):
    [example] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    shutil.copy(CHECKOUT / "benchmarks" / "reference" / "quickstart" / "results.csv", tmp_path)
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True)
    assert "none is worse than baseline" in done.stdout, done.stderr
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    ("before", "after", "registered"),
    [
        ("Scale-vector strategies by name: ", "; or field", PRESETS),
        ("Optimizers: ", "; schedules: ", OPTIMIZERS),
        ("; schedules: ", ". Architectures", SCHEDULES),
    ],
)
def test_what_the_page_on_sweep_files_lists_is_what_is_registered(before, after, registered):
    listed = SWEEP_FILE.split(before)[1].split(after)[0]
    assert re.findall(r"[a-z0-9-]+", listed) == list(registered)


def test_what_is_registered_stands_on_the_page_of_its_kind():
    analysis, gallery = ((CHECKOUT / "docs" / f"{page}.md").read_text() for page in ("analysis", "gallery"))
    assert [name for name in (*LAWS, *TABLES, *FIGURES) if f"`{name}`" not in analysis] == []
    assert [name for name in FIGURES if f"\n## `{name}`" not in gallery] == []


def test_every_executor_is_held_to_the_contract():
    modules = [path.name for path in CHECKOUT.glob("tests/**/test_*.py") if CONTRACT in path.read_text()]
    assert [name for name in EXECUTORS if not any(f"_{name}_" in module for module in modules)] == []


PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_and_folders_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text)]
    assert [link for link in links if link and not (page.parent / link).exists()] == []
    folders = "analysis|model|orchestrator|results|sweeps|benchmarks|tools|tests"
    paths = re.findall(rf"`((?:{folders})/[a-z_/.-]+[a-z/])`", text)
    assert [path for path in paths if not (CHECKOUT / path).exists()] == []


def test_every_command_of_the_readme_exists():
    known = typer.main.get_command(application()).commands
    assert set(re.findall(r"`scalevec ([a-z]+)", README)) <= known.keys()
