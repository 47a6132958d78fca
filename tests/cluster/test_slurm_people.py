"""What people and their own scripts meet on a real SLURM: names, comments, lines of setup."""

from cluster.slurm_daemons import until
from scalevec.orchestrator.executors.slurm.queue import look


def test_a_queue_shows_sweep_rung_and_comment(make_bench, slurm):
    bench = make_bench(flags={"comment": "two words", "begin": "now+1hour"})
    executor = bench.executor(1)
    (number,) = executor.submit([bench.job("completes", rung="large")])
    shown = slurm.run("squeue", "-h", "-o", "%j|%k", "-j", number.partition("/")[0]).strip()
    assert shown == f"contract.large.{number.partition('@')[2]}|two words"
    executor.stop()


def test_a_job_that_is_held_after_a_requeue_is_let_go_by_the_command_that_is_named(make_bench, slurm):
    bench = make_bench()
    executor, job = bench.executor(1), bench.job("listens")
    (number,) = executor.submit([job])
    bench.wait_until_it_runs(job, executor)
    slurm.run("scontrol", "requeuehold", number.partition("/")[0])
    until(lambda: look([number])[number].remedy, "the job is held")
    slurm.run(*look([number])[number].remedy.split())
    until(lambda: not look([number])[number].remedy, "the job is let go")
    executor.stop(hard=True)
