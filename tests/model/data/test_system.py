"""What this process may use of its machine, processes that share out work, and directories that are whole."""

import os
import signal
from pathlib import Path

import pytest

from scalevec.model.data.system import Workers, complete_directory, usable_cpus
from scalevec.model.data.texts import rank
from scalevec.results.claims import process_lives
from support import run_python, wait_until

HERE = len(os.sched_getaffinity(0))
V1 = "cpu/job/cpu.cfs_{}_us"


def written(folder: Path, line: str, files: dict[str, str]) -> Path:
    """The file that names the groups of a process, whose folders are in ``folder``."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    groups = folder / "groups"
    groups.write_text(f"9:name=systemd:/\n{line}\n")
    return groups


@pytest.mark.parametrize(
    ("line", "files", "cpus"),
    [
        ("0::/job/step", {"job/cpu.max": "150000 100000", "job/step/cpu.max": "max 100000"}, 2),
        ("0::/job", {"job/cpu.max": "50000 100000"}, 1),
        ("0::/job", {"job/cpu.max": "max 100000"}, HERE),
        ("4:cpu,cpuacct:/job", {V1.format("quota"): "100000", V1.format("period"): "100000"}, 1),
        ("4:cpu:/elsewhere", {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ("4:cpu:/job", {V1.format("quota"): "-1", V1.format("period"): "100000"}, HERE),
        ("0::/", {}, HERE),
    ],
)
def test_a_quota_of_processors_counts_rounded_up(line, files, cpus, tmp_path):
    assert usable_cpus(written(tmp_path, line, files), tmp_path) == min(cpus, HERE)


def test_a_process_bound_to_one_processor_may_use_one() -> None:
    first = min(os.sched_getaffinity(0))
    code = f"import os, scalevec.model.data.system as system; os.sched_setaffinity(0, {{{first}}})"
    done = run_python(f"{code}; print(system.usable_cpus())")
    assert done.stdout == "1\n", done.stderr


def test_a_slurm_job_uses_no_more_than_it_was_given_though_nothing_binds_it(monkeypatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    assert usable_cpus() == 1


@pytest.mark.parametrize("count", [0, 1, 3])
def test_answers_come_in_the_order_of_the_tasks(count):
    tasks = [bytes([number]) for number in range(40)]
    with Workers(count) as workers:
        assert list(workers.map(rank, tasks)) == [rank(task) for task in tasks]
        assert list(workers.map(rank, [])) == []


def test_a_process_that_is_killed_is_said():
    with Workers(1) as workers, pytest.raises(ChildProcessError, match="killed for want of memory; give the"):
        list(workers.map(signal.raise_signal, [signal.SIGKILL]))


LEFT_ALONE = """
import os, signal, time
from scalevec.model.data.system import Workers
if __name__ == "__main__":
    with Workers(1) as workers:
        answers = workers.map(time.sleep, [0] * 4 + [600])
        next(answers)
        print(*workers._executor._processes, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_ends_in_the_middle_of_its_work_with_the_one_that_started_it():
    left = int(run_python(LEFT_ALONE).stdout)
    wait_until(lambda: not process_lives({"pid": left}))


def make(final, content, **how):
    with complete_directory(final, **how) as partial:
        (partial / "file").write_text(content)


def test_an_error_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="stop"), complete_directory(tmp_path / "new"):
        raise ValueError("stop")
    assert list(tmp_path.iterdir()) == []


def test_under_a_name_that_a_person_chose_the_second_is_told(tmp_path):
    make(tmp_path / "mine", "first", exclusive=True)
    with pytest.raises(FileExistsError, match="mine"):
        make(tmp_path / "mine", "second", exclusive=True)
    assert (tmp_path / "mine/file").read_text() == "first"
    assert len(list(tmp_path.iterdir())) == 1
