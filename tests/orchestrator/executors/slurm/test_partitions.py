"""What SLURM says of its partitions, as limits and as a first profile; how many jobs may wait at a time."""

from pathlib import Path

import pytest
import yaml

from scalevec.orchestrator.commands.run.init import init
from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError
from scalevec.orchestrator.executors.profiles import Profile, RungProfile
from scalevec.orchestrator.executors.slurm import partitions

SINFO = r"""#!/bin/sh
cat <<'END'
cpu*|2-00:00:00|400|128|515000|(null)
gpu|20:00:00|10|64|512000|gpu:a100:4(S:0-1)
gpu|20:00:00|25|96|1031000+|gpu:h100:8(S:0-1),nvme:1
debug|infinite|1|64|512000|gpu:4
END
"""
SACCTMGR = """#!/bin/sh
case "$*" in *DefaultAccount*) echo lab;; *) printf 'guests\nlab\n';; esac
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, script in {"sinfo": SINFO, "sacctmgr": SACCTMGR}.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SCALEVEC_PROFILES", str(tmp_path / "mine" / "profiles.yaml"))
    return tmp_path


def test_a_profile_is_written_of_the_partition_with_most_gpu_nodes(site: Path) -> None:
    init(profile="here")
    text = (site / "mine" / "profiles.yaml").read_text()
    assert "25 nodes of 96 cores, 1007 GB, 8 h100, at most 20:00:00" in text
    assert "of yours: lab, guests" in text
    profile = Profile.model_validate(yaml.safe_load(text)["here"])
    assert profile == Profile(
        executor="slurm",
        partition="gpu",
        max_time=1200.0,
        account="lab",
        gpus=1,
        cpus=12,
        memory_gb=125,
        trials_per_job="auto",
        rungs={"controller": RungProfile(partition="cpu")},
    )


def test_a_file_of_profiles_is_never_overwritten_and_what_to_add_is_shown(site: Path) -> None:
    init(profile="here")
    with pytest.raises(InvalidInputError, match="add these lines:\n\nthere:"):
        init(profile="there")
    assert "there:" not in (site / "mine" / "profiles.yaml").read_text()


def test_a_name_that_would_be_more_than_a_key_is_refused(site: Path) -> None:
    with pytest.raises(InvalidInputError, match="allowed: letters, digits"):
        init(profile="a: b")


def test_without_slurm_no_profile_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingRequirementError, match="no sinfo on the PATH"):
        init(profile="here", output=tmp_path / "p.yaml")
    assert not (tmp_path / "p.yaml").exists()


@pytest.mark.usefixtures("site")
def test_a_time_limit_ends_at_that_of_the_partition() -> None:
    names = {"small": "cpu", "large": "cpu,debug", "x": None}
    rungs = {rung: RungProfile(partition=partition) for rung, partition in names.items()}
    profile = partitions.with_limits(Profile(partition="gpu", rungs=rungs))
    limits = {rung: profile.for_rung(rung).max_time for rung in ("other", "x", "small", "large")}
    assert limits == {"other": 1200.0, "x": 1200.0, "small": 2880.0, "large": None}
    assert partitions.with_limits(Profile()).max_time == 2880.0
    told = partitions.with_limits(Profile(partition="gpu", max_time=60, rungs=rungs))
    assert (told.max_time, told.for_rung("small").max_time) == (60.0, 2880.0)


@pytest.mark.usefixtures("site")
def test_an_unknown_partition_is_refused_with_those_there_are() -> None:
    partitions.refuse_unknown_partitions(Profile(partition="gpu,cpu"))
    with pytest.raises(InvalidInputError, match="'gqu', which SLURM does not have; allowed: cpu, debug, gpu"):
        partitions.refuse_unknown_partitions(Profile(rungs={"r": RungProfile(partition="gqu")}))


@pytest.mark.parametrize(("settings", "most"), [({}, 5000), ({"MaxJobCount": "100"}, 50)])
def test_half_of_what_the_cluster_holds_may_wait(settings, most):
    assert partitions.most_submitted(settings, Profile()) == most


def test_the_profile_has_the_last_word():
    assert partitions.most_submitted({"MaxJobCount": "100"}, Profile(max_submitted=70)) == 70


@pytest.fixture
def clock(monkeypatch):
    """The seconds that it is, which a test sets."""
    now = [1000.0]
    monkeypatch.setattr(partitions.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.usefixtures("clock")
def test_after_a_refusal_half_as_many_are_tried():
    room = partitions.QueueRoom(5000)
    assert room.free(0) == 5000
    room.refused(1000, in_queue=0)
    assert room.free(0) == 500
    room.refused(500, in_queue=250)
    assert [room.free(250), room.free(500)] == [250, 0]


@pytest.mark.usefixtures("clock")
def test_with_nothing_in_the_queue_one_is_always_tried():
    room = partitions.QueueRoom(10)
    room.refused(1, in_queue=0)
    assert room.free(0) == 1


def test_a_quarter_more_is_tried_after_a_while_up_to_what_the_cluster_allows(clock):
    room = partitions.QueueRoom(50)
    room.refused(80, in_queue=0)
    assert room.free(40) == 0
    for more in (10, 10):
        clock[0] += partitions.PROBE_S
        assert room.free(40) == more
    clock[0] += partitions.PROBE_S / 2
    room.refused(10, in_queue=40)
    assert room.free(45) == 0
