"""How a command that trains is asked to stop, goes on, and ends with its worker."""

import os
import signal
from dataclasses import replace

import psutil
import pytest

from foreign_trials import GOES_ON, RESUMES, WHOLE
from scalevec.model.config import RunOptions
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.attempts.retry_policy import decide
from scalevec.results.claims import acquire, end_claim, process_lives
from scalevec.sweeps.trainers.any_trial import Protocol, Readings
from support import wait_until

PATIENCE_S = 60
STOP = """
log(4, 3.6)
os.kill(worker, signal.SIGTERM)
while True: time.sleep(0.01)
"""
"""Has its own worker asked to stop."""


def test_a_script_that_keeps_a_checkpoint_goes_on_from_it(lab):
    trials = lab(GOES_ON, protocol=RESUMES)
    assert trials.run() == WorkerExit.STOPPED
    expected = ("pending", "preempted", 5)
    assert (trials.last()["state"], trials.last()["cause"], trials.last()["step"]) == expected
    before = trials.directory.metrics()[-1]["wall_s"]
    assert trials.run() == WorkerExit.RESULT
    assert trials.result()["wall_s"] > before  # that of all attempts
    assert f"resumed by ['--resume', '{trials.out}']" in trials.printed()
    assert trials.steps() == list(range(1, 11))
    assert trials.result()["resumes"] == 1
    assert trials.result()["loss"] == 3.0


KILLED_IN_A_ROW = """
if not (out / "ckpt-10").exists():
    for step in range(1, 10): log(step, 4 - step / 10)
    (out / "ckpt-10").touch()
    TEAR
    os.kill(os.getpid(), signal.SIGKILL)
AGAIN
"""
"""Is killed in the middle of its last row, after its last checkpoint."""


def test_a_row_that_a_kill_has_torn_is_written_again_by_the_next_attempt(lab):
    tear = """with (out / "log.jsonl").open("a") as file: file.write('{"step": 10, "lo')"""
    body = KILLED_IN_A_ROW.replace("TEAR", tear).replace("AGAIN", "log(10, 3.0, again=True)")
    trials = lab(body, protocol=RESUMES)
    assert trials.run() != WorkerExit.RESULT
    assert trials.run() == WorkerExit.RESULT
    assert (trials.steps(), trials.result()["loss"]) == (list(range(1, 11)), 3.0)


def test_what_a_killed_script_was_printing_is_no_loss(lab):
    pattern = r"step (?P<step>\d+): loss (?P<loss>[\d.]+)"
    printed = "def log(step, loss): print(f'step {step}: loss {loss}', flush=True)\n"
    tear = "print('step 10: loss 3', end='', flush=True)"
    body = printed + KILLED_IN_A_ROW.replace("TEAR", tear).replace("AGAIN", "")
    trials = lab(body, readings=Readings(pattern=pattern, loss="loss"), protocol=RESUMES)
    trials.run()
    assert trials.steps() == list(range(1, 10))


def test_a_script_that_knows_of_no_checkpoint_is_ended_and_starts_over_in_an_empty_folder(lab):
    body = "print('left:', sorted(path.name for path in out.iterdir()))\n(out / 'left').touch()\n" + STOP
    trials = lab(body)
    trials.run()
    trials.run()
    assert trials.printed().splitlines() == ["left: []", "left: []"]
    assert trials.steps() == [4]


@pytest.mark.parametrize(("number", "cause"), [("SIGUSR2", "timeout"), ("SIGINT", "preempted")])
def test_the_time_limit_is_told_from_a_preemption(lab, number, cause):
    trials = lab(STOP.replace("SIGTERM", number))
    assert trials.run() == WorkerExit.STOPPED
    assert trials.last()["cause"] == cause


def test_a_script_that_ignores_the_signal_is_ended_after_the_grace_period(lab):
    trials = lab("signal.signal(signal.SIGUSR2, signal.SIG_IGN)\n" + STOP, protocol=Protocol(grace_s=0.1))
    assert trials.run() == WorkerExit.STOPPED
    notes = [event.get("note") for event in trials.directory.events()]
    assert "the command did not end within 0.1 s of SIGUSR2; it is killed" in notes


SAVES = """
number = 1 + max((int(path.name[5:]) for path in out.glob("ckpt-*")), default=0)
if number < 5:
    (out / f"ckpt-{number}").touch()
    os.kill(worker, signal.SIGTERM)
    while True: time.sleep(0.01)
(out / "end.json").write_text('{"loss": 2.5}')
"""
"""Logs nothing; stops after each of four checkpoints."""
SILENT = Readings(result="end.json")


def attempted(trials) -> list[WorkerExit]:
    """Attempts until one has the result, or the policy gives up."""
    ends = [trials.run()]
    while len(ends) < 30 and ends[-1] != WorkerExit.RESULT and decide(trials.directory.events(), 1).again:
        ends.append(trials.run())
    return ends


def test_a_script_without_metrics_goes_on_as_long_as_it_writes_new_checkpoints(lab):
    trials = lab(SAVES, SILENT, protocol=Protocol(checkpoint="ckpt-*"))
    assert len(attempted(trials)) == 5
    assert trials.result()["loss"] == 2.5
    assert trials.result()["resumes"] == 4


def test_a_script_without_metrics_that_writes_no_new_checkpoint_is_given_up(lab):
    body = "if not (out / 'ckpt-1').exists(): (out / 'ckpt-1').touch()\n" + STOP.replace("log(4, 3.6)", "")
    trials = lab(body, SILENT, protocol=Protocol(checkpoint="ckpt-*"))
    assert len(attempted(trials)) == 4  # the second goes on from a new one


def test_a_checkpoint_that_is_written_again_at_the_same_step_is_no_progress(lab):
    trials = lab("(out / 'ckpt').write_text(str(time.time()))\n" + STOP, protocol=Protocol(checkpoint="ckpt"))
    assert len(attempted(trials)) == 4


def test_another_signal_may_be_what_stops_it(lab):
    body = "signal.signal(signal.SIGHUP, lambda *_: (print('hung up'), sys.exit(7)))\n" + STOP
    trials = lab(body, protocol=Protocol(stop_signal="SIGHUP", stop_exit=7))
    assert trials.run() == WorkerExit.STOPPED
    assert "hung up" in trials.printed()


def test_a_script_that_ends_with_the_exit_code_of_a_stop_goes_on_later(lab):
    trials = lab("(out / 'ckpt-4').touch(); log(4, 3.6); sys.exit(75)", protocol=RESUMES)
    assert trials.run() == WorkerExit.STOPPED
    assert trials.last()["step"] == 4


def test_a_script_that_finishes_when_it_is_asked_to_stop_is_completed(lab):
    handler = "signal.signal(signal.SIGUSR2, lambda *_: sys.exit())\n"
    trials = lab(handler + WHOLE + STOP.replace("log(4, 3.6)", ""))
    assert trials.run() == WorkerExit.RESULT
    assert trials.result()["loss"] == 3.0


def test_a_command_ends_when_its_trial_is_another_workers(lab, monkeypatch):
    from scalevec.orchestrator.worker.trainers import command_trainer

    monkeypatch.setattr(command_trainer, "OWNER_S", 0.0)
    trials = lab("(out / 'here').touch()\nwhile True: time.sleep(0.01)")
    taken = trials.directory

    def take_over(*_):
        if newest := len(list(taken.claims_path.glob("*.json"))) == 1:
            end_claim(taken, newest, "found stale")
            acquire(taken, {})

    monkeypatch.setattr(command_trainer._Following, "_take_rows", take_over)
    assert trials.run() == WorkerExit.NOT_OWNER
    assert trials.last()["state"] == "running"


FAMILY = """
import subprocess
code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(1000)"
for name, apart in (("child", False), ("apart", True)):
    subprocess.Popen([sys.executable, "-c", code, str(out / name)], start_new_session=apart)
(out / "own").write_text(str(os.getpid()))
"""


def family(trials) -> list[psutil.Process]:
    """The processes of the script :data:`FAMILY` once all are there."""
    paths = [trials.out / name for name in ("own", "child", "apart")]
    wait_until(lambda: all(path.exists() and path.read_text() for path in paths))
    return [psutil.Process(int(path.read_text())) for path in paths]


def test_after_kill_9_of_the_worker_no_process_is_left_and_the_next_attempt_completes(lab):
    body = "if not (out.parent / 'once').exists():\n    (out.parent / 'once').touch()\n"
    body += FAMILY.replace("\n", "\n    ") + "time.sleep(1000)\n" + WHOLE
    trials = lab(body)
    worker = trials.fork()
    processes = family(trials)
    guard = processes[0].parent()
    worker.kill()
    os.waitpid(worker.pid, 0)
    _, left = psutil.wait_procs([*processes, guard], timeout=PATIENCE_S)
    assert not left
    assert trials.run() == WorkerExit.RESULT
    assert trials.steps() == list(range(1, 11))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_after_the_death_of_a_script_nothing_that_it_started_is_left(lab, number):
    trials = lab(FAMILY + "time.sleep(1000)")
    worker = trials.fork()
    processes = family(trials)
    processes[0].send_signal(number)
    assert os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1]) == WorkerExit.ERROR
    _, left = psutil.wait_procs(processes, timeout=PATIENCE_S)  # whoever inherits them reaps them in its time
    assert not left
    assert number.name in trials.last()["error"]


def test_what_a_completed_script_leaves_running_is_ended(lab):
    wait = "while not all((out / name).exists() for name in ('child', 'apart')): time.sleep(0.01)\n"
    trials = lab(FAMILY + wait + WHOLE)
    assert trials.run() == WorkerExit.RESULT
    apart = int((trials.out / "apart").read_text() or 2**22)
    wait_until(lambda: not process_lives({"pid": apart}))


@pytest.mark.parametrize(
    ("keep", "left"), [("none", []), ("weights", ["b-ckpt"]), ("all", ["a-ckpt", "b-ckpt"])]
)
def test_checkpoints_are_kept_as_the_sweep_says(lab, keep, left):
    body = "(out / 'a-ckpt').mkdir(); (out / 'a-ckpt' / 'x').touch(); os.utime(out / 'a-ckpt', (1, 1))\n"
    body += "(out / 'b-ckpt').touch()\n" + WHOLE
    trials = lab(body, protocol=Protocol(checkpoint="*-ckpt"), options=RunOptions(keep=keep))
    assert trials.run() == WorkerExit.RESULT
    assert sorted(path.name for path in trials.out.glob("*ckpt")) == left
    assert (trials.out / "log.jsonl").exists()


TORN = """
kept = sorted(out.glob("ckpt-*"))
first = json.loads(kept[-1].read_text()) if kept else 0
for step in range(first + 1, 11):
    log(step, 4 - step / 10)
    (out / f"ckpt-{step:02d}").write_text(json.dumps(step))
    if step == 5 and not (out.parent / "died").exists():
        (out.parent / "died").touch()
        (out / "ckpt-05").write_text("{")
        os.kill(worker, signal.SIGTERM)
        while True: time.sleep(0.01)
"""
"""Is stopped once, with a checkpoint that was written half."""


def test_a_checkpoint_at_which_two_attempts_fail_is_set_aside_for_the_one_before(lab):
    trials = lab(TORN, protocol=RESUMES)
    assert attempted(trials) == [WorkerExit.STOPPED, *[WorkerExit.ERROR] * 2, WorkerExit.RESULT]
    assert trials.steps() == list(range(1, 11))
    (aside,) = (trials.directory.path / "set_aside").iterdir()
    assert aside.name.endswith("-ckpt-05")
    errors = [event["error"] for event in trials.directory.events() if "error" in event]
    assert f"two attempts have failed at its checkpoint, which is set aside: {aside}" in errors[-1]


def test_without_an_older_checkpoint_the_trial_starts_afresh_beside_what_else_it_keeps(lab):
    trials = lab(TORN.replace("ckpt-{step:02d}", "ckpt-05").replace("out.parent", "out"), protocol=RESUMES)
    assert attempted(trials) == [WorkerExit.STOPPED, *[WorkerExit.ERROR] * 2, WorkerExit.RESULT]
    assert trials.result()["loss"] == 3.0


def test_a_script_that_says_of_a_torn_checkpoint_that_all_is_well_trains_on_from_the_one_before(lab):
    calm = "try: first = json.loads(kept[-1].read_text()) if kept else 0\nexcept ValueError: sys.exit(0)"
    body = TORN.replace("first = json.loads(kept[-1].read_text()) if kept else 0", calm)
    trials = lab(body, protocol=RESUMES)
    assert attempted(trials) == [WorkerExit.STOPPED, *[WorkerExit.ERROR] * 2, WorkerExit.RESULT]
    assert trials.steps() == list(range(1, 11))


def test_a_result_of_the_planned_end_is_kept_for_a_script_that_finds_nothing_left_to_do(lab):
    body = """
if (out / "ckpt").exists(): sys.exit(0)
(out / "ckpt").touch()
(out / "result.json").write_text(json.dumps({"step": 10, "test": 3.0}))
sys.exit("tearing down failed")
"""
    readings = Readings(result="result.json", loss="test")
    trials = lab(body, readings, replace(RESUMES, checkpoint="ckpt"))
    assert attempted(trials) == [WorkerExit.ERROR, WorkerExit.RESULT]
    assert trials.result()["loss"] == 3.0


def test_one_damaged_checkpoint_after_the_other_is_set_aside_until_the_start_itself_fails_twice(lab):
    trials = lab(TORN.replace("write_text(json.dumps(step))", 'write_text("{")'), protocol=RESUMES)
    ends = attempted(trials)
    assert ends[0] == WorkerExit.STOPPED
    assert ends[-1] == WorkerExit.RESULT  # afresh, as nothing reads a checkpoint then
    assert len(list((trials.directory.path / "set_aside").iterdir())) == 5
    assert ends.count(WorkerExit.ERROR) == 10


@pytest.mark.parametrize("name", ["ckpt-{step:02d}", "ckpt-05"])
def test_a_script_that_always_fails_after_its_last_step_is_given_up(lab, name):
    body = TORN.replace('write_text("{")', "touch()").replace("ckpt-{step:02d}", name)
    trials = lab(body + "sys.exit('no space for the model')", protocol=RESUMES)
    ends = attempted(trials)
    assert ends[0] == WorkerExit.STOPPED
    assert WorkerExit.RESULT not in ends
    assert len(ends) < 30
