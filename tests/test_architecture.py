"""The floors of the house, and what may be imported when."""

import ast
import sys
from pathlib import Path

import pytest
from support import run_python

CHECKOUT = Path(__file__).resolve().parents[1]
FLOORS = {
    "orchestrator": {"orchestrator", "sweeps", "model", "results", "analysis"},
    "sweeps": {"sweeps", "model"},
    "model": {"model"},
    "results": {"results"},
    "analysis": {"analysis"},
}
MODEL_CONFIGURATION = {
    "model",
    "model.config",
    "model.fields",
    "model.optimization",
    "model.strategies",
    "model.identity",
    "model.accounting",
}
HEAVY = ("torch", "ray", "matplotlib", "pandas", "scipy", "sqlalchemy")


def sources() -> list[Path]:
    return [path for package in FLOORS for path in (CHECKOUT / package).rglob("*.py")]


def module_name(path: Path) -> str:
    parts = path.relative_to(CHECKOUT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """The modules of ours that the file at ``path`` imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: a relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.partition(".")[0] in FLOORS}


@pytest.mark.parametrize("path", sources(), ids=module_name)
def test_no_import_runs_up(path):
    package = module_name(path).partition(".")[0]
    assert {name.partition(".")[0] for name in imports(path)} <= FLOORS[package]


@pytest.mark.parametrize("path", sorted((CHECKOUT / "sweeps").glob("*.py")), ids=module_name)
def test_sweeps_know_of_the_model_only_its_configuration(path):
    of_model = {name for name in imports(path) if name.partition(".")[0] == "model"}
    modules = {".".join(name.split(".")[:2]) for name in of_model}
    assert modules <= MODEL_CONFIGURATION


def test_modules_import_each_other_without_a_circle():
    modules = {module_name(path): path for path in sources()}
    graph = {
        name: {target for target in top_level_imports(path) if target in modules and target != name}
        for name, path in modules.items()
    }
    order: list[str] = []
    while graph:
        free = [name for name, targets in graph.items() if targets <= set(order)]
        assert free, f"a circle among {sorted(graph)}"
        order += free
        graph = {name: targets for name, targets in graph.items() if name not in free}


def top_level_imports(path: Path) -> set[str]:
    """Imports that run when the module is imported; a package's own re-exports do not count."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            is_package = (CHECKOUT / node.module.replace(".", "/")).is_dir()
            found |= inner if is_package else {node.module}
    return found


@pytest.mark.parametrize("module", ["orchestrator.cli", "sweeps", "results", "model.config"])
def test_the_front_door_loads_nothing_heavy(module):
    code = f"import {module}, sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = run_python(code)
    assert done.stdout.strip() == "[]", done.stderr


def test_importing_analysis_loads_no_plots_statistics_or_templates():
    names = ("scipy.stats", "matplotlib", "jinja2")
    code = f"import analysis, sys; print([name for name in {names} if name in sys.modules])"
    assert run_python(code).stdout.strip() == "[]"


def test_the_lists_of_names_in_the_configuration_are_the_registries():
    from model.optimization import OPTIMIZERS, SCHEDULES
    from model.training import optimizers, schedules

    assert sorted(OPTIMIZERS) == sorted(optimizers.OPTIMIZERS)
    assert sorted(SCHEDULES) == sorted(schedules.SCHEDULES)


@pytest.mark.parametrize("module", ["model.training.loop", "analysis.report"])
def test_training_and_analysis_need_no_library_of_the_orchestrator(module):
    absent = ("pydantic", "sqlalchemy", "typer", "rich", "ray", "submitit", "yaml")
    code = f"import sys\nfor name in {absent}: sys.modules[name] = None\nimport {module}\nprint('loaded')"
    assert run_python(code).stdout.strip() == "loaded"


def test_the_tests_run_the_checkout_itself():
    import model

    assert Path(model.__file__).parents[1] == CHECKOUT
    assert sys.version_info >= (3, 11)
