"""The profiles of public machines in docs/examples: what sbatch is asked for a trial and the controller."""

import pytest
from tests.support import CHECKOUT

from scalevec.orchestrator.attempts.jobs import Job, ResourceRequest
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import VARIABLE, load_profile, profile_names
from scalevec.orchestrator.executors.slurm.submission import job_script
from scalevec.orchestrator.sweep.controller import REQUEST, RUNG, site_of_controller

SITES = CHECKOUT / "docs" / "examples" / "sites.yaml"
NEEDED = {
    "jean-zay-h100": {"account=abc@h100", "constraint=h100", "hint=nomultithread", "cpus-per-task=24"},
    "leonardo": {"account=EUHPC_A00_000", "partition=boost_usr_prod", "cpus-per-task=8", "mem=122880M"},
    "perlmutter": {"account=m0000", "constraint=gpu", "qos=shared", "cpus-per-task=32"},
    "lumi": {"account=project_000000000", "partition=small-g", "cpus-per-task=7"},
}
"""What a job of one GPU has to say at each site."""
CONTROLLER = {
    "jean-zay-h100": {"account=abc@cpu", "partition=cpu_p1"},
    "leonardo": {"partition=lrd_all_serial"},
    "perlmutter": {"constraint=cpu", "qos=shared"},
    "lumi": {"partition=small"},
}
REFUSED = {
    "jean-zay-h100": ("mem=",),
    "leonardo": ("constraint=",),
    "perlmutter": ("partition=", "mem="),
    "lumi": ("constraint=",),
}
"""What a site refuses, or what would contradict the rest."""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A site with the profile of that name, out of the user's own file."""
    monkeypatch.setenv(VARIABLE, str(SITES))
    monkeypatch.setenv("SCALEVEC_PRIVATE_DIR", str(tmp_path / "private"))
    return lambda name: Site(tmp_path / "runs", "sweep", 1, load_profile(name, None, "slurm"))


def asked(site: Site, rung: str, request: ResourceRequest) -> set[str]:
    """The options of sbatch in the script of a job of ``rung`` that is expected to take 30 hours."""
    job = Job("0" * 64, (), site.runs_dir, rung=rung, request=request, estimate_s=30 * 3600.0)
    lines = job_script(site, job).splitlines()
    return {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH --")}


def minutes(options: set[str]) -> int:
    """The time limit."""
    return int(next(option for option in options if option.startswith("time=")).removeprefix("time="))


def test_each_example_is_tried_here(here):
    assert set(profile_names(None)) == NEEDED.keys() == CONTROLLER.keys() == REFUSED.keys()


@pytest.mark.parametrize("name", NEEDED)
def test_a_trial_asks_for_what_the_site_needs_and_nothing_that_it_refuses(here, name):
    site = here(name)
    asked_of_one = asked(site, "1b", site.profile.request("1b", ResourceRequest(gpus=1.0)))
    assert asked_of_one >= NEEDED[name] | {"gpus-per-node=1"}
    assert not [option for option in asked_of_one if option.startswith(REFUSED[name])]


@pytest.mark.parametrize(("name", "hours"), {"jean-zay-h100": 20, "leonardo": 24, "lumi": 60}.items())
def test_no_trial_asks_for_more_time_than_the_site_gives(here, name, hours):
    site = here(name)
    assert minutes(asked(site, "1b", site.profile.request("1b", ResourceRequest(gpus=1.0)))) == 60 * hours


@pytest.mark.parametrize("name", CONTROLLER)
def test_the_controller_asks_for_no_gpu_and_at_most_four_hours(here, name):
    site = site_of_controller(here(name))
    options = asked(site, RUNG, site.profile.request(RUNG, REQUEST))
    assert options >= CONTROLLER[name]
    assert not [option for option in options if option.startswith(("gpus", "gres", *REFUSED[name]))]
    assert minutes(options) <= 4 * 60
