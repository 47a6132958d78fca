"""What the controller of a sweep is sent as."""

from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile, RungProfile
from scalevec.orchestrator.sweep import controller


class Queue:
    """Keeps what it is sent."""

    name = "slurm"
    cluster = "here"

    def submit(self, jobs):
        (self.job,) = jobs
        return ["17"]


def sent_to(tmp_path, profile: Profile):
    queue = Queue()
    assert (
        controller.submit(queue, Site(tmp_path, "small", 1, profile), "small", "site", executor="slurm")
        == "17"
    )
    return queue.job


def test_it_asks_for_little_whatever_the_trials_ask_for(tmp_path):
    assert sent_to(tmp_path, Profile(gpus=1, cpus=16, memory_gb=64)).request == controller.REQUEST


def test_its_own_section_of_the_profile_counts(tmp_path):
    job = sent_to(tmp_path, Profile(gpus=1, rungs={"controller": RungProfile(memory_gb=1.5, cpus=2)}))
    assert job.request == ResourceRequest(2, 0.0, 1.5, controller.REQUEST.time_s)


def test_it_is_scalevec_run_and_its_number_is_on_record(tmp_path):
    command = sent_to(tmp_path, Profile()).command
    assert command[command.index("small") :] == (
        *("small", "--runs", str(tmp_path), "--executor", "slurm", "--profile", "site"),
    )
    record = controller.directory_of(tmp_path, "small").job()
    assert (record["executor"], record["job"], record["cluster"]) == ("slurm", "17", "here")
