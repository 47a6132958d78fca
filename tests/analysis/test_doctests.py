import doctest
import importlib
from pathlib import Path

import pytest


def test_the_examples_of_the_page_on_analysis_run():
    page = Path(__file__).parents[2] / "docs" / "analysis.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted > 10
    assert failed == 0


@pytest.mark.parametrize(
    "name", ["analysis", "analysis.fitting", "analysis.power", "analysis.profile_curves"]
)
def test_the_examples_of_the_documentation_run(name: str):
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted > 0
    assert failed == 0
