"""A law is a line, a table or a figure a file and a line, written here into a copy of the packages."""

import re
import subprocess
import sys

import pytest

from plugin_copy import add_line, copied_packages, run_scalevec
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.registry import FIGURES, LAWS, TABLES, load
from support import CHECKOUT

LAW = '    "constant-d": LawEntry("E + A*exp(-alpha*log(x)); positive E, A; start alpha = 0.1", "a test"),'
TABLE = '''
"""How many trials each arm has."""
from scalevec.analysis.tables.render import Table

def build(trials):
    """Return arm and number of trials."""
    counts = [(arm, str(len(trials.of_arm(arm)))) for arm in trials.arms]
    return Table("Trials", ("arm", "trials"), tuple(counts), (False, True))
'''
FIGURE = '''
"""The number of trials of each arm."""
from scalevec.analysis.figures.panels import Drawing

def draw(data):
    counts = data.trials.rows.groupby("arm").size()

    def panel(axis):
        axis.bar(range(len(counts)), counts, tick_label=list(counts.index))

    return Drawing({("", ""): panel}, ("arm", "trials"), "Trials of each arm.", {})
'''
RESULTS = """
import pandas as pd
from scalevec import analysis
rows = pd.DataFrame(
    {"arm": arm, "n_params": n, "n_tokens": 20 * n, "seed": seed, "loss": 1 + (40 + gain + seed / 9) / n**0.2}
    for arm, gain in (("baseline", 0), ("new", -1))
    for n in (1e5, 2e5, 4e5, 8e5, 16e5) for seed in (0, 1)
)
print(analysis.fit(rows, law='constant-d', x='N', bootstrap=0)['baseline'].parameters['alpha'])
print(analysis.render(analysis.table(rows, 'trials', reference='baseline'), 'csv'))
"""


def test_what_a_person_adds_is_fitted_made_and_drawn(tmp_path, sweep):
    environment = copied_packages(tmp_path)
    registry = tmp_path / "analysis" / "registry.py"
    add_line(registry, "LAWS: dict", LAW)
    add_line(
        registry, "    for name, description in (", '        ("trials", "how many trials each arm has"),'
    )
    line = '        ("trial-counts", "trial_counts:draw", "trials of each arm"),'
    add_line(registry, '        ("loss", "law_curves:draw_loss"', line)
    (tmp_path / "analysis" / "tables" / "trials.py").write_text(TABLE, encoding="utf-8")
    (tmp_path / "analysis" / "figures" / "trial_counts.py").write_text(FIGURE, encoding="utf-8")
    command = [sys.executable, "-P", "-c", RESULTS]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    alpha, *table = done.stdout.split()
    assert abs(float(alpha) - 0.2) < 1e-3
    assert table == ["arm,trials", "baseline,10", "new,10"]
    sweep().to_csv(tmp_path / "rows.csv", index=False)
    options = ("--only", "trial-counts", "--format", "svg", "--reference", "baseline", "-o", "figures")
    done = run_scalevec(environment, tmp_path, "figures", "rows.csv", *options)
    assert done.returncode == 0, done.stderr
    assert ">baseline</text>" in (tmp_path / "figures" / "trial-counts.svg").read_text(encoding="utf-8")


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
