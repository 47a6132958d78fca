import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["analysis", "analysis.fitting", "analysis.power"])
def test_the_examples_of_the_documentation_run(name: str):
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted > 0
    assert failed == 0
