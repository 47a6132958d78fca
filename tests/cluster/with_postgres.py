"""Runs a command with ``--store URL`` of a private PostgreSQL: ``with_postgres.py COMMAND ...``.

For what is no test: the benchmark of the index at scale, or a look around by hand.
"""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest

from cluster.postgres_daemon import running


def main() -> int:
    """Returns what the command returns."""
    try:
        with contextmanager(running)() as server:
            return subprocess.run([*sys.argv[1:], "--store", server.url]).returncode
    except pytest.skip.Exception as lacking:
        print(lacking, file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
