"""The files by which people enter the project: they parse, and name what exists."""

import importlib
import re

import pytest
import yaml

import scalevec
from support import CHECKOUT

MAKEFILE = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
TARGETS = {
    target
    for targets in re.findall(r"^([a-z][a-z -]*):(?!=)", MAKEFILE, flags=re.MULTILINE)
    for target in targets.split()
}
COMMAND = re.compile(r"make (?:--?\S+ )*([a-z][a-z-]*)")


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md", ".github/workflows/ci.yml", ".ci/run"])
def test_every_make_target_that_is_named_exists(path):
    text = (CHECKOUT / path).read_text(encoding="utf-8")
    commands = re.findall(r"`[^`\n]*`|^.*\brun: .*$|^make .*$", text, flags=re.MULTILINE)
    named = {target for command in commands for target in COMMAND.findall(command)}
    assert named
    assert named - TARGETS - {"paper-small-steps"} == set()


def test_the_registries_that_contributing_names_are_there():
    text = (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    entries = re.findall(r"`([A-Z]+)` in `([a-z_/]+)\.py`", text)
    assert len(entries) >= 7
    for name, path in entries:
        module = importlib.import_module(f"scalevec.{path.removesuffix('/__init__').replace('/', '.')}")
        assert isinstance(getattr(module, name), dict), name


def test_hooks_call_tools_of_the_projects_environment():
    config = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks)


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == scalevec.__version__
    assert citation["license"] == "Apache-2.0"
