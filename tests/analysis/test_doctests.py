import doctest
import importlib

import pytest

from support import CHECKOUT


@pytest.mark.kept
def test_the_examples_of_the_page_on_analysis_run():
    page = CHECKOUT / "docs" / "analysis.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted > 10
    assert failed == 0


@pytest.mark.parametrize(
    "name",
    [
        "scalevec.analysis",
        "scalevec.analysis.fits.fit",
        "scalevec.analysis.fits.result",
        "scalevec.analysis.power.detectable",
    ],
)
def test_the_examples_of_the_documentation_run(name: str):
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted > 0
    assert failed == 0
