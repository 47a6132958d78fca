"""Faults at random moments here, on SLURM and on Ray: nothing is lost, nothing runs twice, no bit changes."""

from importlib.metadata import version
from pathlib import Path

import pytest

from campaign import LOCAL_FAULTS, Campaign, count_of_faults, sweep_for
from cluster.ray_faults import RayFaults
from cluster.slurm_faults import SlurmFaults

pytestmark = pytest.mark.slow

FAULTS = count_of_faults(6)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, text_files) -> Campaign:
    """The sweep on this machine, without a fault."""
    campaign = Campaign(tmp_path_factory.mktemp("undisturbed"), sweep_for(FAULTS, text_files), [], {}, seed=0)
    campaign.run()
    return campaign


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "disturbed").mkdir()
    return tmp_path / "disturbed"


def test_a_sweep_survives_faults_on_this_machine(folder, undisturbed, text_files):
    campaign = Campaign(folder, sweep_for(FAULTS, text_files), [], LOCAL_FAULTS, seed=1)
    campaign.run(FAULTS, undisturbed.steps())
    campaign.record("local", undisturbed.losses())
    campaign.assert_whole(undisturbed.losses())


def test_a_sweep_survives_faults_on_slurm(slurm_commands, folder, undisturbed, text_files):
    profile = "low: {poll_s: 0.5, memory_gb: 1.5, partition: low, max_parallel: 3}\n"
    (folder / "profiles.yaml").write_text(profile)
    options = ["--executor", "slurm", "--profile", "low"]
    faults = SlurmFaults(slurm_commands).by_name()
    campaign = Campaign(folder, sweep_for(FAULTS, text_files), options, faults, seed=2)
    try:
        campaign.run(FAULTS, undisturbed.steps())
    finally:
        slurm_commands.run("scancel", "--user=root")
    campaign.record(slurm_commands.run("sinfo", "--version").strip(), undisturbed.losses())
    campaign.assert_whole(undisturbed.losses())


def test_a_sweep_survives_faults_on_ray(ray_cluster, folder, undisturbed, text_files, monkeypatch):
    for name, value in ray_cluster.environment.items():
        monkeypatch.setenv(name, value)
    profile = f"cluster: {{executor: ray, address: '{ray_cluster.address}', max_parallel: 3}}\n"
    (folder / "profiles.yaml").write_text(profile)
    faults = RayFaults(ray_cluster).by_name()
    campaign = Campaign(folder, sweep_for(FAULTS, text_files), ["--profile", "cluster"], faults, seed=3)
    campaign.run(FAULTS, undisturbed.steps())
    campaign.record(f"ray {version('ray')}", undisturbed.losses())
    campaign.assert_whole(undisturbed.losses())
