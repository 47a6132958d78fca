"""What the SLURM executor does with jobs of its own, on a real cluster."""

import re
import signal
from contextlib import contextmanager
from itertools import pairwise

import psutil
import pytest

from cluster.slurm_daemons import until
from contracts.bench import log_of
from contracts.executor_contract import collect
from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.profiles import RungProfile
from scalevec.results.run_directory import RunDirectory

COUNTING = """
count = len(list(folder.glob("attempt-*")))
(folder / f"attempt-{count}").touch()
"""
PATIENT = COUNTING + "ready.touch()\nwhile not (folder / 'go').exists():\n    time.sleep(0.02)\n"
TWICE_STOPPED = COUNTING + (
    "def stop(*_):\n    heard.touch()\n    os._exit(75)\n"
    "signal.signal(signal.SIGTERM, stop)\nsignal.signal(signal.SIGUSR2, stop)\n"
    "ready.touch()\nwhile count < 2:\n    time.sleep(0.02)\n"
)
NODE = "print(os.environ['SLURMD_NODENAME'])"


def attempts(job) -> int:
    return len(list(job.directory.glob("attempt-*")))


def slurm_job(number: str) -> str:
    return number.partition("/")[0]


def node_of(job) -> str:
    return log_of(job).splitlines()[-2]


def test_jobs_of_a_rung_are_one_array_and_rungs_do_not_mix(make_bench):
    bench = make_bench()
    executor = bench.executor(1)
    jobs = [bench.job("completes", rung=rung) for rung in ("a", "b", "a", "b")]
    numbers = executor.submit(jobs)
    arrays = [slurm_job(number).partition("_")[0] for number in numbers]
    assert arrays[0] == arrays[2] != arrays[1] == arrays[3]
    assert [slurm_job(number).partition("_")[2] for number in numbers] == ["0", "0", "1", "1"]
    assert all(end.exit_code == 0 for end in collect(executor, 4).values())


def test_the_throttle_of_an_array_holds(make_bench):
    bench = make_bench(max_parallel=1)
    executor = bench.executor(1)
    clock = "print('at', time.monotonic())\ntime.sleep(0.3)\nprint('at', time.monotonic())"
    jobs = [bench.job(clock) for _ in range(3)]
    executor.submit(jobs)
    collect(executor, 3)
    spans = sorted([float(time) for time in re.findall(r"at (\S+)", log_of(job))] for job in jobs)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_an_array_is_cut_to_the_limit(make_bench):
    bench = make_bench(max_submitted=3)
    executor = bench.executor(1)
    assert executor.free_slots == 3
    executor._settings = {**executor._settings, "MaxArraySize": "2"}
    numbers = executor.submit([bench.job("completes") for _ in range(3)])
    assert executor.free_slots == 0
    assert len({slurm_job(number).partition("_")[0] for number in numbers}) == 2
    collect(executor, 3)


def test_trials_share_a_job_one_after_the_other(make_bench):
    bench = make_bench(trials_per_job=3)
    executor = bench.executor(1)
    jobs = [bench.job("completes"), bench.job("crashes"), bench.job("completes"), bench.job("completes")]
    numbers = executor.submit(jobs)
    assert [slurm_job(number).partition("_")[2] for number in numbers] == ["0", "0", "0", "1"]
    assert [re.search(r"/(\d)@", number)[1] for number in numbers] == ["0", "1", "2", "0"]
    ends = collect(executor, 4)
    assert [ends[number].exit_code for number in numbers] == [0, 3, 0, 0]


def test_cancelling_a_trial_of_a_job_leaves_its_neighbours(make_bench):
    bench = make_bench(trials_per_job=3)
    executor = bench.executor(1)
    jobs = [bench.job("listens"), bench.job("completes"), bench.job("completes")]
    numbers = executor.submit(jobs)
    bench.wait_until_it_runs(jobs[0], executor)
    executor.cancel([numbers[0], numbers[1]])
    ends = collect(executor, 3)
    assert [ends[number].cause for number in numbers] == ["cancelled", "cancelled", None]
    assert ends[numbers[2]].exit_code == 0
    assert bench.heard(jobs[0])
    assert not (jobs[1].directory / "pid").exists()


def test_cancelling_a_trial_leaves_the_one_that_runs_beside_it(make_bench):
    bench = make_bench(trials_per_gpu=2)
    executor = bench.executor(1)
    jobs = [bench.job("listens"), bench.job(PATIENT)]
    numbers = executor.submit(jobs)
    for job in jobs:
        bench.wait_until_it_runs(job, executor)
    executor.cancel([numbers[0]])
    assert collect(executor, 1)[numbers[0]].cause == "cancelled"
    assert bench.heard(jobs[0])
    (jobs[1].directory / "go").touch()
    assert collect(executor, 1)[numbers[1]].exit_code == 0


def test_scancel_by_hand_is_noticed(make_bench, slurm):
    bench = make_bench()
    executor, job = bench.executor(1), bench.job("listens")
    (number,) = executor.submit([job])
    bench.wait_until_it_runs(job, executor)
    slurm.run("scancel", slurm_job(number))
    assert collect(executor, 1)[number].cause == "cancelled"


def test_the_kill_of_a_step_is_noticed(make_bench):
    bench = make_bench(trials_per_job=2)
    executor = bench.executor(1)
    jobs = [bench.job("listens"), bench.job("completes")]
    numbers = executor.submit(jobs)
    bench.wait_until_it_runs(jobs[0], executor)
    worker = psutil.Process(int((jobs[0].directory / "pid").read_text()))
    step = worker.parent()
    assert "scalevec.orchestrator.executors.slurm.job_script" in step.cmdline()
    step.kill()
    ends = collect(executor, 2)
    assert ends[numbers[0]].exit_code != 0
    assert ends[numbers[1]].cause == "not_started"
    bench.wait_until_it_is_gone(jobs[0])


def test_too_much_memory_is_told_from_other_ends(make_bench):
    bench = make_bench(memory_gb=0.2)
    executor = bench.executor(1)
    job = bench.job("held = bytearray(600_000_000)\nheld[::4096] = bytes(len(held[::4096]))\ntime.sleep(600)")
    (number,) = executor.submit([job])
    assert collect(executor, 1)[number].cause == "out_of_memory"


def test_where_one_array_is_refused_none_is_sent(make_bench, slurm):
    bench = make_bench(rungs={"large": RungProfile(partition="nowhere")})
    executor = bench.executor(1)
    small = bench.job("completes", rung="small")
    free = executor.free_slots
    with pytest.raises(InvalidInputError, match="Invalid partition name specified"):
        executor.submit([small, bench.job("completes", rung="large")])
    assert executor.free_slots == free
    name = next((bench.folder / "runs" / "sweeps" / "contract" / "slurm").iterdir()).name
    until(lambda: name not in slurm.run("squeue", "-h", "-o", "%j"), "its job is gone")


@contextmanager
def failing_node(slurm, number):
    """The daemon of a job's node dies, and the controller is told rather than left to find out."""
    node = slurm.run("squeue", "-h", "-o", "%N", "-j", slurm_job(number)).strip()
    slurm.stop_daemon(node, signal.SIGKILL)
    slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    try:
        yield node
    finally:
        slurm.start_node(node)
    until(lambda: node in slurm.nodes_in("idle"), f"{node} is back", slurm.logs)


def test_a_node_that_fails_is_named_with_its_trial(make_bench, slurm):
    bench = make_bench(preempt="cancel")
    executor, job = bench.executor(1), bench.job("listens")
    (number,) = executor.submit([job])
    bench.wait_until_it_runs(job, executor)
    with failing_node(slurm, number) as node:
        end = collect(executor, 1)[number]
    assert (end.cause, end.node) == ("node_failure", node)


def test_nodes_to_be_avoided_are_avoided(make_bench):
    bench = make_bench(exclude=["n3"])
    executor = bench.executor(1)
    jobs = [bench.job(NODE, avoid_nodes=("n1", "n2.cluster", "unknown;reboot")) for _ in range(3)]
    executor.submit(jobs)
    collect(executor, 3)
    assert {node_of(job) for job in jobs} == {"n4"}


def test_a_rung_has_the_resources_of_its_own(make_bench):
    bench = make_bench(gpus=1, rungs={"large": RungProfile(gpus=1, cpus=2, partition="low", time=7)})
    executor = bench.executor(1)
    show = (
        "print(os.environ['SLURM_JOB_PARTITION'], os.environ.get('CUDA_VISIBLE_DEVICES'), "
        "os.environ['OMP_NUM_THREADS'])"
    )
    jobs = [bench.job(show, rung=rung, request=ResourceRequest(gpus=0.5)) for rung in ("small", "large")]
    executor.submit(jobs)
    collect(executor, 2)
    (partition, _, cpus), (of_large, gpu, cpus_of_large) = (node_of(job).split() for job in jobs)
    assert (partition, cpus, of_large, cpus_of_large) == ("high", "1", "low", "2")
    assert gpu in ("0", "1")
    assert "#SBATCH --time=7" in script_of(executor, jobs[1])


def test_the_script_of_a_trial_asks_for_what_was_asked_for(make_bench):
    bench = make_bench(setup=["export FROM_SETUP=yes"], flags={"nice": 5})
    executor, job = bench.executor(1), bench.job("print(os.environ['FROM_SETUP'])")
    executor.submit([job])
    collect(executor, 1)
    assert node_of(job) == "yes"
    for line in ("#SBATCH --nice=5", "#SBATCH --cpus-per-task=1", "export FROM_SETUP=yes"):
        assert line in script_of(executor, job)


def script_of(executor, job) -> str:
    """What was sent to SLURM with the job."""
    token = RunDirectory(job.directory).job()["job"].partition("@")[2]
    (script,) = (executor.site.private / "slurm" / token).glob("*_submission.sh")
    return script.read_text()


def test_a_folder_with_signs_of_a_shell_in_its_name_is_only_a_name(make_bench, tmp_path):
    folder = tmp_path / "a b;touch $HOME`touch pwned`&(x)*"
    folder.mkdir()
    bench = make_bench(folder, private_dir=str(folder / "private"))
    executor, job = bench.executor(1), bench.job("completes")
    (number,) = executor.submit([job])
    assert collect(executor, 1)[number].exit_code == 0
    assert "hello\n" in log_of(job)
    assert not list(tmp_path.rglob("pwned"))


def test_a_number_that_the_cluster_gave_to_another_job_is_not_adopted(make_bench, slurm):
    bench = make_bench()
    executor, job = bench.executor(1), bench.job("completes")
    (number,) = executor.submit([job])
    collect(executor, 1)
    other = slurm.run("sbatch", "--output=/dev/null", "--wrap", "sleep 60").split()[-1]
    (folder,) = bench.folder.glob("runs/sweeps/contract/slurm/*")
    places = folder / "places.json"
    places.write_text(places.read_text().replace(f'"{slurm_job(number)}"', f'"{other}"'))
    for record in folder.glob("ended/*"):
        record.unlink()
    assert bench.executor(1).adopt([f"{other}/0@{folder.name}"]) == set()
    slurm.run("scancel", other)


@pytest.mark.nightly
def test_where_the_scheduler_resubmits_it_hears_of_the_time_limit(make_bench):
    bench = make_bench(time=2, notice_s=25, preempt="cancel")
    executor, job = bench.executor(1), bench.job(TWICE_STOPPED)
    (number,) = executor.submit([job])
    end = collect(executor, 1)[number]
    assert (end.exit_code, end.cause, attempts(job), bench.heard(job)) == (75, "timeout", 1, True)
