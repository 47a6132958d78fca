"""Runs a command while a private SLURM is up: ``namespace.sh python with_slurm.py COMMAND ...``.

For what is no test: the benchmark of the executors' overhead, or a look around by hand.
"""

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest

from cluster.needs import only_loopback
from cluster.slurm_daemons import ACCOUNTING_PROGRAMS, PROGRAMS, SlurmCluster, require_programs, running


def main() -> int:
    """Returns what the command returns."""
    try:
        require_programs(*PROGRAMS, *ACCOUNTING_PROGRAMS)
    except pytest.skip.Exception as lacking:
        print(lacking, file=sys.stderr)
        return 3
    if not only_loopback():
        print("run this through namespace.sh: daemons would listen on the network", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as folder,
        contextmanager(running)(SlurmCluster(Path(folder))) as cluster,
    ):
        environment = os.environ | {"SLURM_CONF": cluster.environment["SLURM_CONF"]}
        return subprocess.run(sys.argv[1:], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
