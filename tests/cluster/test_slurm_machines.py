"""One trial on two machines of a real SLURM: its losses, and what the loss of one of its processes does."""

from pathlib import Path

import psutil
import pytest

from cluster.slurm_daemons import until
from hold import hold, release
from scalevec.model.train import newest_step
from scalevec.results.run_directory import RunDirectory, trial_ids
from support import ONE_TRIAL, call_main, succeeded

pytestmark = pytest.mark.slow

PATIENCE_S = 900
PROFILES = """\
two: {poll_s: 0.2, memory_gb: 1.2, time: 60, nodes: 2}
four: {poll_s: 0.2, memory_gb: 0.9, time: 60, nodes: 2, processes: 2, shard: true}
bundled: {nodes: 2, trials_per_job: 2}
"""


@pytest.fixture
def sweep(tmp_path, text_files) -> Path:
    (tmp_path / "small.yaml").write_text(ONE_TRIAL.format(text=text_files))
    (tmp_path / "profiles.yaml").write_text(PROFILES)
    return tmp_path


@pytest.fixture
def start(start_on_slurm, sweep):
    return start_on_slurm


def the_trial(folder: Path) -> RunDirectory:
    (name,) = trial_ids(folder / "runs")
    return RunDirectory.of(folder / "runs", name)


def end_of(process) -> None:
    _, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, messages


def losses(folder: Path) -> list[float]:
    result, rows = the_trial(folder).result(), the_trial(folder).metrics_before_damage()
    return [result["loss"], result["loss_validation"], *(row["loss"] for row in rows)]


@pytest.fixture
def of_one_process(sweep, tmp_path_factory) -> list[float]:
    folder = tmp_path_factory.mktemp("alone")
    (folder / "small.yaml").write_text((sweep / "small.yaml").read_text())
    succeeded(call_main(["run", "small.yaml"], folder, {"SCALEVEC_CACHE_DIR": str(folder / "cache")}))
    return losses(folder)


@pytest.mark.parametrize(
    ("profile", "size"), [("two", 2), pytest.param("four", 4, marks=pytest.mark.nightly)]
)
def test_two_machines_give_the_losses_of_one_process(profile, size, start, sweep, of_one_process):
    end_of(start(profile))
    assert the_trial(sweep).result()["world_size"] == size
    assert f"{size} processes on" in the_trial(sweep).log_path.read_text()
    assert losses(sweep) == pytest.approx(of_one_process, rel=1e-4)


def test_kill_9_on_the_second_machine_ends_the_attempt_and_the_next_goes_on(
    start, slurm, sweep, of_one_process
):
    hold(sweep)
    process = start("two")
    until(lambda: trial_stands(sweep), "the trial stands", slurm.logs)
    there = [worker for worker in workers(sweep) if "--node 1" in " ".join(worker.cmdline())]
    (second,) = [rank for rank in there if rank.ppid() in [agent.pid for agent in there]]
    second.kill()
    release(sweep)
    end_of(process)
    events = the_trial(sweep).events()
    actual = [event["attempt"] for event in events if event["state"] == "running" and "attempt" in event]
    assert actual == [1, 2]
    assert the_trial(sweep).result()["resumes"] == 1
    assert not workers(sweep)
    assert losses(sweep) == pytest.approx(of_one_process, rel=1e-4)


def trial_stands(folder: Path) -> bool:
    return any(
        newest_step(RunDirectory.of(folder / "runs", name).checkpoints_path)
        for name in trial_ids(folder / "runs")
    )


def workers(folder: Path) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if str(folder / "runs") in words and "scalevec.orchestrator.worker.train" in words:
            processes.append(process)
    return processes


def test_trials_that_share_a_job_of_two_machines_are_refused(start):
    process = start("bundled")
    _, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "a: nodes is 2 and trials_per_job 2; allowed: one trial for each job" in messages
