"""A script of somebody else's on each executor, through a sweep file, while it is killed and stopped."""

import pytest

from foreign_sweep import ForeignSweep, end_of, strike

pytestmark = pytest.mark.slow

SLURM = "cluster: {executor: slurm, poll_s: 0.2, memory_gb: 1.5, time: 60}\n"


@pytest.fixture(
    params=[
        pytest.param("local", marks=pytest.mark.nightly),
        "slurm",
        pytest.param("ray", marks=pytest.mark.nightly),
    ]
)
def options(request, tmp_path, monkeypatch) -> tuple[str, ...]:
    """Those of ``scalevec run`` for an executor whose daemons run."""
    if request.param == "local":
        return ("-j", "2")
    text = SLURM
    if request.param == "slurm":
        request.getfixturevalue("slurm_commands")
    else:
        cluster = request.getfixturevalue("ray_cluster")
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        text = f"cluster: {{executor: ray, address: '{cluster.address}'}}\n"
    (tmp_path / "profiles.yaml").write_text(text)
    return ("--profile", "cluster")


@pytest.mark.nightly
def test_two_arms_three_sizes_two_seeds_with_a_tuned_rate_survive_kill_9_and_a_time_limit(options, tmp_path):
    sweep = ForeignSweep(tmp_path)
    sweep.hold()
    strike(sweep, sweep.start(*options))
    output = end_of(sweep.start(*options))
    assert "18 trials, 18 completed" in output
    sweep.assert_whole()
