"""``import scalevec``: few names, all of them there, none loaded before it is used."""

import ast
import doctest
import importlib
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import scalevec
from support import CHECKOUT, run_python

LONGEST_IMPORT = 8
"""In starts of the interpreter, of some 20 ms; numpy's takes 10, torch's 100."""


@pytest.mark.parametrize("name", [*scalevec.__all__, "open"])
def test_every_name_is_there_and_has_a_docstring(name):
    assert getattr(scalevec, name).__doc__


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'scalevec' has no attribute 'fits'"):
        scalevec.fits  # noqa: B018


def test_type_checkers_see_the_names_that_are_there():
    tree = ast.parse(Path(scalevec.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(scalevec.__all__)
    assert set(scalevec.__all__) <= set(dir(scalevec))


def test_a_star_import_leaves_the_builtin_open_alone():
    assert "open" not in scalevec.__all__


def test_the_import_loads_nothing_heavy_and_none_of_the_five_packages():
    heavy = ("torch", "pandas", "numpy", "scipy", "pydantic")
    loaded = run_python("import scalevec, sys; print(*sys.modules)").stdout.split()
    assert "scalevec" in loaded
    assert [name for name in loaded if name in heavy or name.startswith("scalevec.")] == []


def test_the_import_is_fast():
    def processor_s(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-P", "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)

    def least(code: str) -> float:
        return min(processor_s(code) for _ in range(5))

    assert least("import scalevec") < LONGEST_IMPORT * least("")


@pytest.mark.parametrize("name", ["scalevec", "scalevec.sweeps"])
def test_the_examples_of_the_docstrings_run(name):
    tried = doctest.testmod(importlib.import_module(name))
    assert tried.attempted > 0
    assert tried.failed == 0


def test_the_version_is_the_projects():
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]
    assert scalevec.__version__
