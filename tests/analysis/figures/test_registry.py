"""A figure is one file and one line: what is written from it, and that nothing heavy is loaded to list it."""

import pytest

from plugin_copy import add_line, copied_packages, run_scalevec
from scalevec.analysis.registry import FIGURES, load
from support import CHECKOUT, run_python

CODE = '''
"""The number of trials of each arm."""

from scalevec.analysis.figures.panels import Drawing


def draw(data):
    counts = data.trials.rows.groupby("arm").size()

    def panel(axis):
        axis.bar(range(len(counts)), counts, tick_label=list(counts.index))

    return Drawing({("", ""): panel}, ("arm", "trials"), "Trials of each arm.", {})
'''


def test_a_figure_added_to_a_copy_of_the_packages_is_drawn_from_there(tmp_path, sweep):
    environment = copied_packages(tmp_path)
    (tmp_path / "analysis" / "figures" / "trial_counts.py").write_text(CODE, encoding="utf-8")
    line = '        ("trial-counts", "trial_counts:draw", "trials of each arm"),'
    add_line(tmp_path / "analysis" / "registry.py", '        ("loss", "law_curves:draw_loss"', line)
    sweep().to_csv(tmp_path / "rows.csv", index=False)
    options = ("--only", "trial-counts", "--format", "svg", "--reference", "baseline", "-o", "figures")
    done = run_scalevec(environment, tmp_path, "figures", "rows.csv", *options)
    assert done.returncode == 0, done.stderr
    assert "<!-- baseline -->" in (tmp_path / "figures" / "trial-counts.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FIGURES)
def test_every_line_of_the_registry_has_its_code(name: str):
    assert callable(load(FIGURES[name].factory))
    assert FIGURES[name].description


def test_listing_figures_loads_no_library():
    code = (
        "import sys; from scalevec.analysis.registry import FIGURES; "
        "print([name for name in ('numpy', 'pandas', 'matplotlib') if name in sys.modules], len(FIGURES))"
    )
    assert run_python(code).stdout.split() == ["[]", str(len(FIGURES))]


def test_the_documentation_names_every_figure():
    text = (CHECKOUT / "docs" / "analysis.md").read_text(encoding="utf-8")
    assert [name for name in FIGURES if f"`{name}`" not in text] == []
