"""What loads what: workers and the command line must not wait for a database or a table library."""

import subprocess
import sys

import pytest

HEAVY = {"sqlalchemy", "pandas", "numpy", "torch", "pyarrow", "platformdirs"}
OURS = {"model", "sweeps", "orchestrator", "analysis"}


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("results", set()),
        ("scalevec.results.run_directory", set()),
        ("scalevec.results.claims", set()),
        ("scalevec.results.sweep_folder", set()),
        ("scalevec.results.index.store", {"sqlalchemy", "platformdirs"}),
        ("scalevec.results.tidy", {"pandas", "numpy", "pyarrow"}),
    ],
)
def test_a_module_loads_only_what_it_needs(module, allowed):
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert not loaded & (HEAVY | OURS) - allowed
