"""The executor of Ray keeps the contract on a real cluster of two nodes, and what only it promises."""

import psutil
import pytest

from cluster.ray_daemons import RayCluster
from cluster.slurm_daemons import until
from contracts.bench import ProcessBench, log_of
from contracts.executor_contract import *  # noqa: F403
from contracts.executor_contract import collect
from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.ray import ray_nodes


class RayBench(ProcessBench):
    """A task of Ray ends with its driver."""

    outlives_its_scheduler = False

    def kill_the_scheduler(self, executor) -> None:
        super().kill_the_scheduler(executor)
        executor.close()

    def process(self, job) -> psutil.Process:
        return psutil.Process(int((job.directory / "pid").read_text()))


@pytest.fixture
def bench(ray_cluster: RayCluster, tmp_path, monkeypatch):
    for name, value in ray_cluster.environment.items():
        monkeypatch.setenv(name, value)
    ray_bench = RayBench("ray", tmp_path, Profile(address=ray_cluster.address))
    yield ray_bench
    ray_bench.close()


def test_jobs_run_on_both_nodes_at_a_time(bench):
    executor = bench.executor(1)
    jobs = [bench.job("listens") for _ in range(4)]
    executor.submit(jobs)
    for job in jobs:
        bench.wait_until_it_runs(job, executor)
    executor.stop()
    assert sorted(end.node for end in collect(executor, 4).values()) == ["n1", "n1", "n2", "n2"]


def test_a_job_has_as_many_threads_as_it_asks_for(bench):
    executor = bench.executor(1)
    job = bench.job("print(os.environ['OMP_NUM_THREADS'])", request=ResourceRequest(cpus=2))
    executor.submit([job])
    collect(executor, 1)
    assert log_of(job) == "2\n"


def test_two_halves_share_one_gpu_and_a_third_waits(bench):
    show = "print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n"
    listens = "signal.signal(signal.SIGTERM, lambda *_: os._exit(75))\nready.touch()\ntime.sleep(600)"
    executor = bench.executor(1)
    jobs = [bench.job(show + listens, request=ResourceRequest(gpus=0.5)) for _ in range(3)]
    numbers = executor.submit(jobs)
    for job in jobs[:2]:
        bench.wait_until_it_runs(job, executor)
    assert [log_of(job) for job in jobs[:2]] == ["0\n", "0\n"]
    assert not (jobs[2].directory / "ready").exists()
    executor.cancel(numbers[:1])
    collect(executor, 1)
    bench.wait_until_it_runs(jobs[2], executor)
    executor.stop()
    assert {end.node for end in collect(executor, 2).values()} == {"n1"}


@pytest.mark.parametrize(
    "request_", [ResourceRequest(cpus=3), ResourceRequest(gpus=2), ResourceRequest(memory_gb=1e6)]
)
def test_what_no_node_can_meet_is_refused_with_what_there_is(bench, request_):
    executor = bench.executor(1)
    message = r"big: asks for .* on one machine; .* n1 with 2 CPUs, 1 GPUs.*n2 with"
    with pytest.raises(InvalidInputError, match=message):
        executor.submit([bench.job("completes", rung="big", request=request_)])
    assert executor.free_slots == 4


def test_a_node_to_avoid_is_avoided_while_there_are_others(bench):
    executor = bench.executor(1)
    jobs = [bench.job("completes", avoid_nodes=("n1",)) for _ in range(3)]
    jobs.append(bench.job("completes", avoid_nodes=("n1",), request=ResourceRequest(gpus=1)))
    numbers = executor.submit(jobs)
    ends = collect(executor, 4)
    assert [ends[number].node for number in numbers] == ["n2", "n2", "n2", "n1"]


def test_a_trial_on_several_machines_avoids_a_node_while_there_are_enough_others(bench, ray_cluster):
    ray_cluster.add_node("n3")
    try:
        executor, request = bench.executor(1), ResourceRequest(nodes=2)
        (number,) = executor.submit([bench.job("completes", avoid_nodes=("n1",), request=request)])
        assert nodes_of_group(executor, number) == {"n2", "n3"}
        collect(executor, 1)
    finally:
        ray_cluster.kill_node("n3")


def nodes_of_group(executor, number) -> set[str]:
    """The names of the nodes that have the places of a job."""
    from ray.util import placement_group_table

    group = executor._tasks[number].group.group
    group.wait(60)
    names = {node.id: node.name for node in ray_nodes.alive()}
    return {names[node_id] for node_id in placement_group_table(group)["bundles_to_node_id"].values()}


def test_a_job_that_waits_leaves_the_queue_when_it_is_cancelled(bench):
    executor = bench.executor(1)
    running, waiting = (bench.job("listens", request=ResourceRequest(gpus=1)) for _ in range(2))
    executor.submit([running])
    bench.wait_until_it_runs(running, executor)
    numbers = executor.submit([waiting])
    executor.cancel(numbers)
    assert collect(executor, 1)[numbers[0]].cause == "cancelled"
    assert not (waiting.directory / "pid").exists()


def test_the_process_ends_with_its_worker_of_ray(bench):
    """Else it would go on writing beside its successor."""
    executor, job = bench.executor(1), bench.job("deaf")
    (number,) = executor.submit([job])
    bench.wait_until_it_runs(job, executor)
    process = bench.process(job)
    process.parent().kill()
    end = collect(executor, 1)[number]
    assert (end.exit_code, end.cause) == (None, "killed")
    assert end.node in ("n1", "n2")
    bench.wait_until_it_is_gone(job)


def test_a_lost_node_is_named_and_nothing_of_it_runs_on(bench, ray_cluster):
    ray_cluster.add_node("n3")
    executor = bench.executor(1)
    job = bench.job("deaf", avoid_nodes=("n1", "n2"))
    (number,) = executor.submit([job])
    bench.wait_until_it_runs(job, executor)
    ray_cluster.kill_node("n3")
    end = collect(executor, 1)[number]
    assert (end.exit_code, end.cause, end.node) == (None, "node_failure", "n3")
    bench.wait_until_it_is_gone(job)


def demanded() -> list[dict[str, float]]:
    """The resources of what waits for a machine, as an autoscaler sees them."""
    import ray
    from ray._raylet import GcsClient
    from ray.autoscaler.v2.sdk import get_cluster_resource_state

    state = get_cluster_resource_state(GcsClient(address=ray.get_runtime_context().gcs_address))
    return [dict(waiting.request.resources_bundle) for waiting in state.pending_resource_requests]


def test_a_cluster_that_grows_is_asked_for_what_it_has_not_yet(bench, ray_cluster):
    bench.profile = Profile(address=ray_cluster.address, autoscale=True, resources={"large": 1})
    executor, job = bench.executor(1), bench.job("completes")
    assert executor.free_slots > 4
    (number,) = executor.submit([job])
    until(lambda: any(wanted.get("large") == 1 for wanted in demanded()), "the demand is seen")
    assert executor.wait(0.0) == []
    grown = ray_cluster.cluster.add_node(num_cpus=1, resources={"large": 1}, node_name="grown")
    assert collect(executor, 1)[number].node == "grown"
    ray_cluster.cluster.remove_node(grown)


def test_a_resource_of_the_sites_own_is_refused_where_no_node_has_it(bench, ray_cluster):
    bench.profile = Profile(address=ray_cluster.address, resources={"large": 1})
    with pytest.raises(InvalidInputError, match=r"1 large on one machine; .* n1 with .* 0 large"):
        bench.executor(1).submit([bench.job("completes", rung="big")])
