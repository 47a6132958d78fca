"""Tables and expressions of strangers through every reading command: refused or answered, never a fault.

``python tests/orchestrator/cli/test_odd_tables.py FIRST NUMBER`` tries more of them and prints the faults.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from odd_tables import fault_of

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 25))
def test_odd_tables_are_answered_or_refused(first: int, tmp_path: Path):
    assert [fault for number in range(first, first + 25) if (fault := fault_of(number, tmp_path))] == []


@pytest.mark.nightly
def test_ten_thousand_odd_tables_are_answered_or_refused(tmp_path: Path):
    assert [fault for number in range(10_000) if (fault := fault_of(number, tmp_path))] == []


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    begin, count = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        for number in range(begin, begin + count):
            if fault := fault_of(number, Path(folder)):
                print(fault, flush=True)
