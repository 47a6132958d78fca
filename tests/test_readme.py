"""The README shows what the kept results say, and its sweep file is a valid one."""

import importlib.util
import re
from pathlib import Path

import pytest
import typer

import sweeps
from orchestrator.cli import app

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def regenerate():
    spec = importlib.util.spec_from_file_location("regenerate", CHECKOUT / "docs" / "regenerate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sentences_and_table_are_those_of_the_kept_results(regenerate):
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    assert regenerate.with_block(text, regenerate.block()) == text


def test_the_figures_are_those_of_the_kept_results(regenerate):
    for name, svg in regenerate.drawings().items():
        assert (CHECKOUT / "docs" / "figures" / f"{name}.svg").read_text(encoding="utf-8") == svg, name


def test_the_sweep_file_of_the_readme_is_valid(tmp_path):
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("text")
    assert sweeps.loads(example, "README.md", tmp_path).name == "my-sweep"


def test_every_command_of_the_readme_exists():
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    known = typer.main.get_command(app).commands
    assert set(re.findall(r"`scalevec ([a-z]+)", text)) <= known.keys()


def test_the_tables_of_the_small_sweeps_are_those_of_the_kept_results(monkeypatch):
    monkeypatch.syspath_prepend(CHECKOUT / "docs")
    small_results = importlib.import_module("small_results")
    text = small_results.PAGE.read_text(encoding="utf-8")
    assert small_results.with_blocks(text) == text
