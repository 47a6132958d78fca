"""A script of somebody else's on this machine, through a sweep file, while it is killed and stopped."""

import signal

import pytest

from foreign_sweep import SMALL, ForeignSweep, end_of, strike

pytestmark = pytest.mark.slow


@pytest.fixture
def sweep(tmp_path):
    sweep = ForeignSweep(tmp_path, SMALL)
    yield sweep
    for process in sweep.processes():
        process.kill()


def test_after_kill_9_of_script_and_scheduler_and_a_time_limit_nothing_is_lost_or_there_twice(sweep):
    sweep.hold()
    strike(sweep, sweep.start("-j", "2"))
    end_of(sweep.start("-j", "2"))
    sweep.assert_whole()


def test_ctrl_c_stops_scripts_with_their_checkpoints_and_the_sweep_goes_on(sweep):
    sweep.hold()
    process = sweep.start("-j", "2")
    sweep.held(2, process)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert sweep.causes() == {"preempted"}
    sweep.release()
    end_of(sweep.start("-j", "2"))
    sweep.assert_whole()
    resumed = [directory.result()["resumes"] for directory in sweep.directories()]
    assert sum(resumed) == 2
