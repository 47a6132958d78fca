"""Each law, table and figure has its line in the registry, its code, and its place in the documentation."""

import re

from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.registry import FIGURES, LAWS
from support import CHECKOUT


def test_every_law_is_what_its_line_says():
    for name, entry in LAWS.items():
        assert law_named(name).formula in entry.description
        assert not re.search(r"\bx\b", formula_of(AnalysisOptions(law=name, x="N")))


def test_the_documentation_names_every_figure():
    text = (CHECKOUT / "docs" / "analysis.md").read_text(encoding="utf-8")
    assert [name for name in FIGURES if f"`{name}`" not in text] == []
