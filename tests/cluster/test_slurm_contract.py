"""The SLURM executor keeps the contract, on a real cluster."""

import pytest

from contracts.bench import ProcessBench
from contracts.executor_contract import *  # noqa: F403
from scalevec.orchestrator.executors.profiles import Profile


@pytest.fixture
def bench(slurm, slurm_commands, tmp_path):
    built = ProcessBench("slurm", tmp_path, Profile(poll_s=0.2))
    yield built
    built.close()
