"""The preflight job on a real cluster."""

from dataclasses import replace

import pytest

from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.sweep.preflight import preflight

ASKED = ResourceRequest(memory_gb=1.5)


@pytest.fixture
def site(slurm_commands, tmp_path) -> Site:
    return Site(tmp_path / "runs", "small", 1, Profile(poll_s=0.2))


def test_a_cluster_like_this_machine_is_ready(site):
    executor = EXECUTORS["slurm"].build(site)
    preflight(executor, site, request=ASKED)
    assert executor.free_slots == EXECUTORS["slurm"].build(site).free_slots


def test_nodes_without_the_gpu_that_trials_need_and_without_the_corpus_are_told(site):
    with pytest.raises(MissingRequirementError) as lacking:
        preflight(EXECUTORS["slurm"].build(site), site, request=replace(ASKED, gpus=1), corpora=["f" * 64])
    lines = str(lacking.value).splitlines()
    assert lines[0] == "the machines of slurm are not ready for the trials:"
    assert [line.split(":")[0] for line in lines[1:]] == ["- CUDA", "- corpus"]


def test_a_job_that_cannot_even_start_is_told_with_its_last_words(site):
    broken = replace(
        site, profile=site.profile.model_copy(update={"setup": ("echo no such module >&2; exit 3",)})
    )
    with pytest.raises(MissingRequirementError, match="no such module"):
        preflight(EXECUTORS["slurm"].build(broken), broken, request=ASKED)
