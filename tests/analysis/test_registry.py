"""A law is a line, a table or a figure a file and a line, written here into a copy of the packages."""

import re

import pytest

from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.registry import FIGURES, LAWS, TABLES, load
from support import CHECKOUT


def test_every_law_is_what_its_line_says():
    for name, entry in LAWS.items():
        assert law_named(name).formula in entry.description
        assert not re.search(r"\bx\b", formula_of(AnalysisOptions(law=name, x="N")))


@pytest.mark.parametrize("entry", [*TABLES.values(), *FIGURES.values()], ids=lambda entry: entry.factory)
def test_every_table_and_figure_has_its_code_where_its_line_says(entry):
    assert callable(load(entry.factory))
    assert entry.description


def test_the_documentation_names_every_figure():
    text = (CHECKOUT / "docs" / "analysis.md").read_text(encoding="utf-8")
    assert [name for name in FIGURES if f"`{name}`" not in text] == []
