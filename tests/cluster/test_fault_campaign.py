"""Faults at random moments here, on SLURM and on Ray: nothing is lost, nothing runs twice, no bit changes."""

from importlib.metadata import version
from pathlib import Path

import pytest

from campaign import LOCAL_FAULTS, Campaign, Losses, count_of_faults
from cluster.ray_faults import RayFaults
from cluster.slurm_faults import SlurmFaults

pytestmark = pytest.mark.slow

FAULTS = count_of_faults(6)
SEEDS = (FAULTS + 1) // 2
"""At first: a trial per fault, of two arms."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, text_files) -> Campaign:
    """The sweep on this machine, without a fault."""
    campaign = Campaign(tmp_path_factory.mktemp("undisturbed"), text_files, SEEDS, [], {}, seed=0)
    campaign.run()
    return campaign


def losses_without_faults(undisturbed: Campaign, campaign: Campaign) -> Losses:
    """What all trials of ``campaign`` should come to; it may have been given seeds beside its first ones."""
    if campaign.n_seeds > undisturbed.n_seeds:
        undisturbed.set_seeds(campaign.n_seeds)
        undisturbed.run()
    return undisturbed.losses(campaign.n_seeds)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "disturbed").mkdir()
    return tmp_path / "disturbed"


@pytest.mark.nightly
def test_a_sweep_survives_faults_on_this_machine(folder, undisturbed, text_files):
    campaign = Campaign(folder, text_files, SEEDS, [], LOCAL_FAULTS, seed=1)
    campaign.run(FAULTS, undisturbed.steps())
    expected = losses_without_faults(undisturbed, campaign)
    campaign.record("local", expected)
    campaign.assert_whole(expected)


def test_a_sweep_survives_faults_on_slurm(slurm_commands, folder, undisturbed, text_files):
    profile = "low: {poll_s: 0.5, memory_gb: 1.5, time: 60, partition: low, max_parallel: 3}\n"
    (folder / "profiles.yaml").write_text(profile)
    options = ["--executor", "slurm", "--profile", "low"]
    faults = SlurmFaults(slurm_commands).by_name()
    campaign = Campaign(folder, text_files, SEEDS, options, faults, seed=2)
    try:
        campaign.run(FAULTS, undisturbed.steps())
    finally:
        slurm_commands.run("scancel", "--user=root")
    expected = losses_without_faults(undisturbed, campaign)
    campaign.record(slurm_commands.run("sinfo", "--version").strip(), expected)
    campaign.assert_whole(expected)


@pytest.mark.nightly
def test_a_sweep_survives_faults_on_ray(ray_cluster, folder, undisturbed, text_files, monkeypatch):
    for name, value in ray_cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SCALEVEC_PROFILES", str(folder / "profiles.yaml"))
    profile = f"cluster: {{executor: ray, address: '{ray_cluster.address}', max_parallel: 3}}\n"
    (folder / "profiles.yaml").write_text(profile)
    faults = RayFaults(ray_cluster).by_name()
    campaign = Campaign(folder, text_files, SEEDS, ["--profile", "cluster"], faults, seed=3)
    campaign.run(FAULTS, undisturbed.steps())
    expected = losses_without_faults(undisturbed, campaign)
    campaign.record(f"ray {version('ray')}", expected)
    campaign.assert_whole(expected)
