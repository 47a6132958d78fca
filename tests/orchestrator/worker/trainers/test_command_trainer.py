"""A trial whose training is a command: what is run, and what its end means."""

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from foreign_trials import METRICS, WHOLE, same_signals
from scalevec.model.config import RunOptions
from scalevec.model.fields import PlainValues
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.attempts.retry_policy import decide
from scalevec.orchestrator.worker import ranks
from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.orchestrator.worker.train import join_attempt
from scalevec.orchestrator.worker.trainers.readings import result_file
from scalevec.sweeps.trainers.any_trial import Protocol, Readings

RESULT = Readings(result="result.json", tokens="tokens")
COMMAND = (sys.executable, "train.py", "{out}", "0")
RANKS = ("{node_rank}", "{master}")
AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@example.org")
WAIT = "while True: time.sleep(1)"


def test_a_script_that_logs_json_lines_becomes_a_result(lab):
    trials = lab()
    assert trials.run() == WorkerExit.RESULT
    result = trials.result()
    assert (result["status"], result["loss"], result["loss_validation"]) == ("completed", 3.0, None)
    assert (result["steps"], result["n_tokens"], result["n_params"]) == (10, 1000, 500)
    assert result["flops"] == 6 * 500 * 1000
    assert result["loss_initial"] == 3.9
    assert result["tokens_per_s"] == pytest.approx(1000 / result["wall_s"])
    assert trials.steps() == list(range(1, 11))


def test_the_command_is_given_what_only_an_attempt_knows(lab):
    body = "(out / 'given').write_text(json.dumps(sys.argv))\n" + WHOLE
    words = ("--seed={seed}", "{seed_index}", "{trial_json}", "{gpus}", "{node_rank}", "{master}", "{width}")
    trials = lab(body, command=("{python}", "train.py", "{out}", "0", *words))
    trials.run()
    given = json.loads((trials.out / "given").read_text())
    assert given[1] == str(trials.out)
    assert given[3:] == [
        f"--seed={trials.trial.seed_value}",
        "3",
        str(trials.directory.path / "fields.json"),
        "1",
        "0",
        "127.0.0.1",
        "8",
    ]
    assert trials.told()["width"] == 8
    assert trials.told()["seed"] == trials.trial.seed_value


@pytest.mark.parametrize(("asked", "seen"), [(False, None), (True, 7)])
def test_it_runs_in_the_sweeps_folder_and_sees_schedulers_variables_if_asked(lab, monkeypatch, asked, seen):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    body = "print(Path.cwd(), os.environ.get('SLURM_JOB_ID'), sys.flags.safe_path)\n" + WHOLE
    trials = lab(body, protocol=Protocol(scheduler_variables=asked))
    trials.run()
    assert f"{trials.folder} {seen} False" in trials.printed()


def fails_for_good(trials, *words: str) -> None:
    """One attempt ends with an error that names ``words``, and is not tried again."""
    assert trials.run() == WorkerExit.ERROR
    last = trials.last()
    assert (last["state"], last["cause"]) == ("pending", "error")
    for word in words:
        assert word in last["error"]
    decision = decide(trials.directory.events(), 1)
    assert not decision.again
    assert decision.reason == last["error"]


@pytest.mark.parametrize(
    ("program", "why"),
    [("no-such-program", "No such file or directory"), ("./train.py", "train.py: Permission denied")],
)
def test_a_command_that_cannot_be_run_is_said(lab, program, why):
    fails_for_good(lab(command=(program,)), "cannot be run on", why)


def test_a_script_that_was_edited_after_the_plan_is_not_run(lab):
    trials = lab()
    trials.script.write_text("edited")
    fails_for_good(trials, "train.py: is not what it was when this trial was planned")


def test_a_file_that_the_command_writes_where_its_words_name_it_is_said_before_it_makes_other_trials(lab):
    command = (sys.executable, "train.py", "{out}", str(os.getpid()), "--history=all.csv")
    trials = lab("Path('all.csv').touch()\n" + WHOLE, command=command)
    fails_for_good(trials, f"{trials.folder / 'all.csv'}: the command names it", "belongs below {out}")


def test_a_folder_that_is_not_on_the_machine_is_said(lab):
    trials = lab()
    trials.folder.rename(trials.root / "elsewhere")
    fails_for_good(trials, f"{trials.folder}: the folder of the sweep file is not on this machine")


def test_exit_0_without_a_result_is_an_error(lab):
    fails_for_good(lab("pass", RESULT), "the trainer ended without", "result.json")


def test_a_loss_that_ends_as_null_has_diverged_and_null_beside_another_loss_is_none(lab):
    for beside in ("", ", lr=0.1"):
        trials = lab(f"for step in range(1, 11): log(step, 3.0 if step < 7 else None{beside})")
        assert (trials.run(), trials.result()["status"]) == (WorkerExit.RESULT, "diverged")
    for beside in ("train_loss=4.0", "train=4.0", "norm='1.5'"):
        trials = lab(f"for step in range(11): log(step, 3.0 if step % 10 == 0 else None, {beside})")
        assert (trials.run(), trials.result()["loss"]) == (WorkerExit.RESULT, 3.0)
    trials = lab("for step in range(11): log(step, None, norm=1.5)")
    assert (trials.run(), trials.result()["status"]) == (WorkerExit.RESULT, "diverged")


@pytest.mark.parametrize("loss", [0.0, -1.0])
def test_a_last_row_whose_loss_is_not_above_zero_is_an_error(lab, loss):
    # As a result it would be unreadable, and the trial would run again for ever.
    fails_for_good(lab(f"log(10, {loss})"), f"the row of step 10 says {loss:g} nats, which is no loss")


def test_a_result_without_a_step_is_refused_where_the_log_breaks_off_before_the_end(lab):
    options = {
        "readings": replace(METRICS, result="result.json", tokens=""),
        "values": PlainValues(width=8, batch_tokens=100),
    }
    end = "(out / 'result.json').write_text('{\"loss\": 3.0}')"
    fails_for_good(lab(f"for step in range(1, 6): log(step, 3.0)\n{end}", **options), "is of step 5;")
    told = end.replace("3.0", '3.0, "global_step": 6')
    fails_for_good(lab(f"for step in range(11): log(step, 3.0)\n{told}", **options), "is of step 6;")
    trials = lab(f"for step in range(3, 10, 3): log(step, 3.0)\n{end}", **options)
    assert trials.run() == WorkerExit.RESULT  # the next row would have come after the end


def test_a_last_evaluation_long_before_the_last_row_is_an_error(lab):
    body = "for step in range(1, 101): log(step, 3.0 if step in (50, {last}) else None, train=3.0)"
    readings = replace(METRICS, tokens="", training_loss="train")
    fails_for_good(lab(body.format(last=70), readings), "is of step 70, and rows go on to step 100")
    assert lab(body.format(last=99), readings).run() == WorkerExit.RESULT


def test_a_late_row_without_a_loss_forgets_none(lab):
    late = """(out / "log.jsonl").open("a").write('{"step": 9, "memory": 7}')"""
    trials = lab(f"log(10, 3.0); {late}", replace(METRICS, tokens=""))
    trials.run()
    assert trials.result()["loss"] == 3.0


def test_a_loss_of_400_digits_is_an_error(lab):
    fails_for_good(lab(f"log(10, {10**400})"), "a number is expected")


def test_exit_0_without_a_row_of_metrics_is_an_error(lab):
    message = "ended without a row of metrics that holds 'step' and 'loss'; keys in "
    fails_for_good(lab("log(10, '')"), message)


def test_where_no_row_has_the_loss_the_keys_of_the_rows_are_named(lab):
    trials = lab("log(10, 3.0)", readings=replace(METRICS, loss="test"))
    fails_for_good(trials, f"'step' and 'test'; keys in {METRICS.metrics}: step, loss")


def test_a_script_whose_first_line_names_no_program_is_not_said_to_be_absent(lab, tmp_path):
    (wrapper := tmp_path / "wrapper").write_text("#!/absent/python\n")
    wrapper.chmod(0o755)
    trials = lab("", command=(str(wrapper),))
    fails_for_good(trials, "wrapper: the program in its first line is not there")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"loss": 3.0, "tok', "is not whole JSON"),
        ("[3.0]", "holds list; an object is expected"),
        ('{"tokens": 1000}', "has no 'loss'; keys: tokens"),
        ('{"loss": "low", "tokens": 1000}', "loss is 'low'; a number is expected"),
        ('{"loss": -1.0, "tokens": 1000}', "loss is -1, which is no loss in nats"),
        ('{"loss": 3.0}', "has no 'tokens'"),
        ('{"loss": 3.0, "tokens": 900}', "says 900 tokens; the plan is 1,000"),
    ],
)
def test_a_result_that_is_not_whole_or_not_of_the_plan_is_an_error(lab, content, message):
    fails_for_good(lab(f"(out / 'result.json').write_text({content!r})", RESULT), "result.json: ", message)


@pytest.mark.parametrize("loss", ["null", '9.3, "diverged": true', '9.3, "status": "diverged"'])
def test_a_null_for_the_loss_of_a_result_has_diverged_and_its_own_word_counts(lab, loss):
    trials = lab(f"(out / 'result.json').write_text('{{\"loss\": {loss}, \"tokens\": 1000}}')", RESULT)
    trials.run()
    assert trials.result()["status"] == "diverged"


def test_a_result_that_cannot_be_read_now_is_no_mistake_of_a_person(tmp_path):
    (tmp_path / "result.json").write_text("{}")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            result_file(tmp_path, "result.json")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_in_place_of_a_result_is_an_error(tmp_path, make):
    make(tmp_path / "result.json")
    with pytest.raises(DefiniteError, match=r"result\.json|/dev/zero"):
        result_file(tmp_path, "result.json")


def test_parameters_that_differ_from_the_plan_are_an_error(lab):
    body = "(out / 'result.json').write_text('{\"loss\": 3.0, \"n\": 600}')"
    readings = Readings(result="result.json", n_params="n")
    fails_for_good(lab(body, readings), "says 600 parameters; the plan is 500")


@pytest.mark.parametrize("name", ["../result.json", "link.json"])
def test_a_result_outside_of_the_trials_folder_is_refused(lab, name):
    body = """
result = out.parent / "result.json"
result.write_text('{"loss": 1.0, "tokens": 1000}')
(out / "link.json").symlink_to(result)
"""
    # The worker's own result would be there too: a script must not write it.
    body = body.replace("result.json", "stray.json")
    readings = replace(RESULT, result=name.replace("result", "stray"))
    fails_for_good(lab(body, readings), "outside of the trial's folder")


def test_a_result_of_an_earlier_attempt_does_not_count(lab):
    body = """
if list(out.glob("ckpt")): sys.exit()
(out / "ckpt").touch()
(out / "result.json").write_text('{"loss": 3.0, "tokens": 1000}')
sys.exit(1)
"""
    trials = lab(body, RESULT, protocol=Protocol(checkpoint="ckpt"))
    assert (trials.run(), trials.run()) == (WorkerExit.ERROR,) * 2
    assert "the trainer ended without" in trials.directory.events()[-1]["error"]


def test_a_loss_that_stays_not_finite_ends_the_training_as_diverged(lab):
    trials = lab("log(1, 4.0)\nfor step in (2, 3, 4): log(step, float('nan'))\n" + WAIT)
    assert trials.run() == WorkerExit.RESULT
    result = trials.result()
    assert (result["status"], result["loss"], result["diverged_at_step"]) == ("diverged", None, 2)


@pytest.mark.parametrize("last", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite_at_the_end_is_diverged_however_it_was_before(lab, last):
    trials = lab("for step in range(1, 10): log(step, 4 - step / 10)\n" + f"log(10, float('{last}'))")
    assert trials.run() == WorkerExit.RESULT
    assert (trials.result()["status"], trials.result()["diverged_at_step"]) == ("diverged", 10)


def test_a_loss_that_is_not_finite_for_a_moment_is_not_diverged(lab):
    trials = lab("log(0, float('inf'))\n" + WHOLE)
    assert trials.run() == WorkerExit.RESULT
    assert (trials.result()["status"], trials.result()["loss"]) == ("completed", 3.0)


def test_an_exit_code_is_tried_again_until_the_same_last_line_comes_twice(lab):
    trials = lab("print('step 7: no such token', time.time()); sys.exit(3)")
    assert trials.run() == WorkerExit.ERROR
    assert "the command ended with exit code 3: step 7: no such token" in trials.last()["error"]
    assert decide(trials.directory.events(), 1).again
    trials.run()
    assert not decide(trials.directory.events(), 1).again


def test_a_script_that_is_killed_is_an_interruption(lab):
    trials = lab("log(1, 4.0); os.kill(os.getpid(), signal.SIGKILL)")
    assert trials.run() == WorkerExit.ERROR
    assert trials.last()["cause"] == "killed"
    assert decide(trials.directory.events(), 1).again


def test_rows_may_be_read_from_what_the_script_prints(lab):
    body = "for step in range(1, 11): print(f'iter {step}: loss {4 - step / 10:.4f}, time 3 ms', flush=True)"
    readings = Readings(pattern=r"iter (?P<step>\d+): loss (?P<loss>\S+),")
    trials = lab(body, readings)
    assert trials.run() == WorkerExit.RESULT
    assert trials.steps() == list(range(1, 11))
    assert trials.result()["loss"] == 3.0
    assert "iter 10: loss 3.0000, time 3 ms\n" in trials.printed()


def test_the_best_row_counts_only_if_that_is_asked_for(lab):
    body = "for step, loss in ((1, 4.0), (2, 3.0), (10, 3.5)): log(step, loss)"
    last, best = lab(body), lab(body, replace(METRICS, best=True))
    for trials in (last, best):
        assert trials.run() == WorkerExit.RESULT
    assert (last.result()["loss"], best.result()["loss"]) == (3.5, 3.0)


def test_validation_and_test_losses_are_told_apart(lab):
    body = "log(1, None, train=4.0)\nlog(10, 3.2, train=3.0, val=3.1)"
    trials = lab(body, replace(METRICS, loss_validation="val", training_loss="train"))
    trials.run()
    assert (trials.result()["loss"], trials.result()["loss_validation"]) == (3.2, 3.1)
    assert [row["loss"] for row in trials.directory.metrics()] == [4.0, 3.0]


def test_several_processes_of_a_machine_are_the_commands_to_start(lab):
    command = (*COMMAND, "{gpus}", "{master}")
    trials = lab("print('given', sys.argv[3:])\n" + WHOLE, command=command, options=RunOptions(processes=4))
    assert trials.run() == WorkerExit.RESULT
    assert trials.printed().count("given ['4', '127.0.0.1']") == 1
    assert trials.result()["world_size"] == 4


def test_each_machine_starts_the_command_once_and_is_told_where_the_first_is(lab, tmp_path):
    trials = lab("(out / sys.argv[3]).write_text(sys.argv[4])\n" + WHOLE, command=(*COMMAND, *RANKS))
    meeting = tmp_path / "meeting.json"
    meeting.write_text('{"host": "10.0.0.1", "port": 7}')
    trials.out.mkdir()
    attempt = replace(trials.attempt, node=1, nodes=2, meeting=meeting, options=RunOptions(processes=4))
    with same_signals():
        assert join_attempt(attempt) == WorkerExit.RESULT
    assert (trials.out / "1").read_text() == "10.0.0.1"
    assert trials.directory.metrics() == []


def test_other_machines_are_called_once_the_first_has_emptied_the_folder(lab, tmp_path, monkeypatch):
    trials, meeting, seen = lab(), tmp_path / "meeting.json", []
    trials.out.mkdir()
    (trials.out / "of an earlier attempt").touch()
    call = ranks.Ranks.call_others

    def calling(self) -> None:
        seen.append([path.name for path in trials.out.iterdir()])
        call(self)

    monkeypatch.setattr(ranks.Ranks, "call_others", calling)
    attempt = replace(trials.attempt, nodes=2, meeting=meeting, options=RunOptions(processes=2))
    assert trials.run(attempt) == WorkerExit.RESULT
    assert seen == [[]]
    assert json.loads(meeting.read_text())["port"]


def test_the_commit_of_the_sweeps_folder_is_on_record(lab):
    trials = lab()
    for words in (("init", "-q"), ("add", "train.py"), (*AUTHOR, "commit", "-qm", "a")):
        subprocess.run(["git", *words], cwd=trials.folder, check=True)
    trials.run()
    (record,) = trials.directory.environments()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=trials.folder, capture_output=True, text=True)
    assert record["trainer"] == {"commit": commit.stdout.strip()}


def test_a_secret_on_standard_output_is_masked_in_what_is_kept(lab, monkeypatch):
    monkeypatch.setenv("TRACKER_API_KEY", "hush-hush-1234")
    trials = lab("print('my key is', os.environ['TRACKER_API_KEY'])\nsys.exit(os.environ['TRACKER_API_KEY'])")
    trials.run()
    kept = trials.printed() + trials.directory.events_path.read_text()
    assert "my key is ***" in kept
    assert "hush" not in kept
