"""The floors of the house, the order of the folders in it, and what may be imported when."""

import ast
import statistics
import sys
from collections import Counter
from pathlib import Path

import pytest

from import_graph import ImportGraph
from support import CHECKOUT, run_python, succeeded

FLOORS = {
    "orchestrator": {"orchestrator", "sweeps", "model", "results", "analysis"},
    "sweeps": {"sweeps", "model", "analysis"},
    "model": {"model"},
    "results": {"results"},
    "analysis": {"analysis"},
}
GRAPH = ImportGraph(CHECKOUT, tuple(FLOORS))
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in GRAPH.paths.items()}
FOLDERS = GRAPH.folders()

# What `scalevec --help`, completion and `import scalevec` must not wait for.
HEAVY = ("torch", "ray", "matplotlib", "pandas", "scipy", "sqlalchemy")

# Doubles of today. This list may only get shorter.
CLASSES_TWICE = {"Cell", "Problem", "Profile", "_Line"}


def package_of(module: str) -> str:
    return module.partition(".")[0]


def test_the_graph_holds_every_package_and_known_imports():
    assert {package_of(name) for name in GRAPH.paths} == set(FLOORS)
    assert "model.config" in GRAPH.targets["sweeps.ladders"]
    assert sum(len(targets) for targets in GRAPH.targets.values()) > len(GRAPH.paths)


@pytest.mark.parametrize("module", GRAPH.paths)
def test_no_import_runs_up_between_packages(module):
    assert {package_of(target) for target in GRAPH.targets[module]} <= FLOORS[package_of(module)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_and_subfolders_of_a_folder_import_each_other_without_a_circle(folder):
    circle = GRAPH.circles(folder)
    assert not circle, f"a circle in {folder}/: " + ", then ".join(circle)


def test_a_circle_between_two_folders_is_reported_with_its_files(tmp_path):
    sources = {
        "house/low/a.py": "def late():\n    from scalevec.house.high import b",
        "house/high/b.py": "from scalevec.house.low.c import NAME",
        "house/high/d.py": "import os\nif TYPE_CHECKING:\n    from scalevec.house import door",
        "house/low/c.py": "NAME = 1",
        "house/door.py": "from scalevec.house.high.d import os",
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    graph = ImportGraph(tmp_path, ("house",))
    assert set(graph.circles("house")) == {"house.low.a -> house.high.b", "house.high.b -> house.low.c"}
    assert graph.circles("house.low") == []


def test_sweeps_know_of_the_model_only_its_configuration():
    of_model = targets_of("sweeps", "model")
    assert of_model <= {
        f"model.{name}"
        for name in ("config", "optimization", "strategies", "identity", "accounting", "fields")
    }


def test_what_sweeps_take_from_analysis_is_free_of_numpy():
    modules = sorted(targets_of("sweeps", "analysis"))
    imports = "".join(f"import scalevec.{name.removesuffix('.__init__')}\n" for name in modules)
    assert loaded_by(imports, ("numpy", "pandas", "scipy")) == "[]"


def targets_of(importer: str, package: str) -> set[str]:
    """Return the modules of ``package`` that modules of ``importer`` import."""
    targets = (GRAPH.targets[name] for name in GRAPH.paths if package_of(name) == importer)
    return {target for target in set().union(*targets) if package_of(target) == package}


def loaded_by(code: str, names: tuple[str, ...]) -> str:
    """Return which of ``names`` a fresh interpreter has loaded after ``code``, as a printed list."""
    shown = f"{code}\nimport sys; print([name for name in {names} if name in sys.modules])"
    return succeeded(run_python(shown)).stdout.strip()


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_at_most_18_files_and_subfolders(folder):
    assert len(FOLDERS[folder] - {"__init__"}) <= 18


@pytest.mark.parametrize("module", GRAPH.paths)
def test_a_file_has_at_most_400_lines(module):
    lines = len(GRAPH.paths[module].read_text(encoding="utf-8").splitlines())
    assert lines <= 400


def test_functions_are_short():
    functions = [
        node.end_lineno - node.lineno + 1
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(functions) > 1000
    assert statistics.median(functions) <= 8
    assert statistics.quantiles(functions, n=10)[-1] <= 25


def test_a_class_name_occurs_once_in_the_project():
    nodes = (node for tree in TREES.values() for node in ast.walk(tree))
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert len(names) > 100
    assert {name for name, times in names.items() if times > 1} <= CLASSES_TWICE


def test_a_file_name_occurs_once_in_a_package():
    names = Counter(f"{package_of(name)}: {name.rpartition('.')[2]}" for name in GRAPH.paths)
    assert not {name for name, times in names.items() if times > 1 and not name.endswith("__init__")}


@pytest.mark.parametrize("module", ["orchestrator.cli.main", "sweeps", "results", "model.config", "analysis"])
def test_a_front_door_loads_nothing_heavy(module):
    allowed = {"analysis": ("pandas", "scipy")}.get(module, ())
    names = tuple(name for name in HEAVY if name not in allowed)
    assert loaded_by(f"import scalevec.{module}", names) == "[]"


def test_what_plans_and_schedules_loads_no_torch_before_something_is_to_be_measured():
    modules = ("sweep.sweep_run", "commands.run.plan", "commands.run.run", "commands.look.status")
    code = "\n".join(f"import scalevec.orchestrator.{name}" for name in modules)
    assert loaded_by(code, ("torch",)) == "[]"


@pytest.mark.parametrize("module", ["scalevec.model.train.loop", "scalevec.analysis.report.html"])
def test_training_and_analysis_need_no_library_of_the_orchestrator(module):
    absent = ("pydantic", "sqlalchemy", "typer", "rich", "ray", "submitit", "ruamel")
    code = f"import sys\nfor name in {absent}: sys.modules[name] = None\nimport {module}\nprint('loaded')"
    assert run_python(code).stdout.strip() == "loaded"


def test_the_tests_run_the_checkout_itself():
    from scalevec import model

    assert Path(model.__file__).resolve().parents[1] == CHECKOUT
    assert sys.version_info >= (3, 11)
