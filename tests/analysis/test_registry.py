"""A law is a line, a table a file and a line, written here into a copy of the packages and run there."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plugin_copy import add_line, copied_packages
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.registry import LAWS, TABLES, load

RESULTS = """
import pandas as pd
from scalevec import analysis
rows = pd.DataFrame(
    {"arm": arm, "n_params": n, "n_tokens": 20 * n, "seed": seed, "loss": 1 + (40 + gain + seed / 9) / n**0.2}
    for arm, gain in (("baseline", 0), ("new", -1))
    for n in (1e5, 2e5, 4e5, 8e5, 16e5) for seed in (0, 1)
)
"""
TABLE = '''
"""How many trials each arm has."""
from scalevec.analysis.tables.render import Table

def build(trials):
    """Return arm and number of trials."""
    counts = [(arm, str(len(trials.of_arm(arm)))) for arm in trials.arms]
    return Table("Trials", ("arm", "trials"), tuple(counts), (False, True))
'''


@pytest.fixture
def run_copy(tmp_path: Path) -> Callable[[str], str]:
    """Copy the packages to ``tmp_path``; returns what prints the output of code that runs in the copy."""
    environment = copied_packages(tmp_path)

    def run(code: str) -> str:
        command = [sys.executable, "-P", "-c", RESULTS + code]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_every_law_is_what_its_line_says():
    for name, entry in LAWS.items():
        assert law_named(name).formula in entry.description
        assert not re.search(r"\bx\b", formula_of(AnalysisOptions(law=name, x="N")))


def test_every_table_has_its_code_where_its_line_says():
    assert all(callable(load(entry.factory)) for entry in TABLES.values())


def test_a_law_is_one_line(tmp_path, run_copy):
    line = (
        '    "constant-d": LawEntry("E + A*exp(-alpha*log(x)); positive E, A; start alpha = 0.1", "a test"),'
    )
    add_line(tmp_path / "analysis/registry.py", "LAWS: dict", line)
    code = "print(analysis.fit(rows, law='constant-d', x='N', bootstrap=0)['baseline'].parameters['alpha'])"
    assert abs(float(run_copy(code)) - 0.2) < 1e-3


def test_a_table_is_a_file_and_a_line(tmp_path, run_copy):
    (tmp_path / "analysis/tables/trials.py").write_text(TABLE, encoding="utf-8")
    line = '        ("trials", "how many trials each arm has"),'
    add_line(tmp_path / "analysis/registry.py", "    for name, description in (", line)
    code = "print(analysis.render(analysis.table(rows, 'trials', reference='baseline'), 'csv'))"
    assert run_copy(code).split() == ["arm,trials", "baseline,10", "new,10"]
