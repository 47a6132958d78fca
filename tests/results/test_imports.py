"""What loads what: workers and the command line must not wait for a database or a table library."""

import pytest

from support import run_python, succeeded

HEAVY = {"sqlalchemy", "pandas", "numpy", "torch", "pyarrow", "platformdirs"}
OURS = {"model", "sweeps", "orchestrator", "analysis"}


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("scalevec.results", set()),
        ("scalevec.results.run_directory", set()),
        ("scalevec.results.claims", set()),
        ("scalevec.results.sweep_folder", set()),
        ("scalevec.results.index.store", {"sqlalchemy", "platformdirs"}),
        ("scalevec.results.tidy", {"pandas", "numpy", "pyarrow"}),
    ],
)
def test_a_module_loads_only_what_it_needs(module, allowed):
    packages = "{name.removeprefix('scalevec.').partition('.')[0] for name in sys.modules}"
    loaded = set(succeeded(run_python(f"import sys, {module}; print(*{packages})")).stdout.split())
    assert not loaded & (HEAVY | OURS) - allowed
