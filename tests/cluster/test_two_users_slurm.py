"""Two users of one group with a runs folder on a real SLURM: nothing of one runs as the other."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from campaign import killed
from cluster.group_members import GroupMember, group_members
from cluster.intruder import LEVELS, Intruder, repair
from cluster.slurm_daemons import PROGRAMS, SlurmCluster, require_programs, running, until
from hold import can_hold, hold, release
from scalevec.model.train import newest_step
from scalevec.results.run_directory import RunDirectory, trial_ids
from support import SCALEVEC, assert_refused, succeeded, two_arms

pytestmark = pytest.mark.slow

INTRUDER = Path(__file__).with_name("intruder.py")
PATIENCE_S = 300
PROFILES = """\
plain: {poll_s: 0.5, memory_gb: 1, time: 60}
narrow: {poll_s: 0.5, memory_gb: 1, time: 60, max_parallel: 1}
"""
ON_SLURM = ("--executor", "slurm")
PLAIN, NARROW = ("--profile", "plain"), ("--profile", "narrow")
TRUSTED = (*PLAIN, "--trust")
"""For the code of the trainer; it says nothing of checkpoints of others that come later."""
THEIRS = f"""\
name: theirs
trainer:
  command: [{sys.executable}, train.py, "width={{width}}", "seed={{seed}}", "out={{out}}"]
  metrics: log.jsonl
  tokens: tokens
  checkpoint: ckpt*.pkl
  resume: --resume
n_params: 8 * width ** 2
trial: {{batch_tokens: 256}}
tokens: [1280]
ladder: [{{name: s, width: 8}}]
arms: {{plain: {{}}}}
seeds: [0]
compare: {{reference: plain}}
resources: {{default: {{time: 10}}}}
"""
SCRIPT = """\
import json, pickle, sys, time
from pathlib import Path

given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
out = Path(given["out"])
kept = [pickle.loads(path.read_bytes()) for path in out.glob("ckpt*.pkl")] if "--resume" in sys.argv else []
for step in range(max(kept, default=0) + 1, 6):
    row = {"step": step, "loss": 1 / step + int(given["seed"]) % 997 / 1e5, "tokens": 256 * step}
    with (out / "log.jsonl").open("a") as log:
        print(json.dumps(row), file=log)
    (out / "ckpt.pkl").write_bytes(pickle.dumps(step))
    while step == 3 and Path("hold").exists():
        time.sleep(0.02)
"""
PRIVATE = {
    ".bashrc": "alias ll='ls -l'\n",
    "thesis.txt": "Chapter 1\n",
    "thesis/chapter-2.txt": "Chapter 2\n",
}
"""Files of the first user at home."""


@dataclass(frozen=True)
class Lab:
    """Two users, each with the same sweeps in a folder at home, who share ``folder``; a queue, a canary."""

    first: GroupMember
    second: GroupMember
    folder: Path
    slurm: SlurmCluster
    canary: Path

    def hold_jobs(self) -> None:
        self.slurm.run("scontrol", "update", "partitionname=high", "state=down")

    def release_jobs(self) -> None:
        self.slurm.run("scontrol", "update", "partitionname=high", "state=up")

    def names_in_queue(self) -> list[str]:
        return self.slurm.run("squeue", "-h", "-r", "-o", "%j").split()

    def run(
        self, user: GroupMember, sweep: str, runs: Path, *options: str, **variables: str
    ) -> "subprocess.Popen[str]":
        """``scalevec run`` on SLURM, started."""
        words = ("run", f"{sweep}.yaml", *ON_SLURM, *options)
        return user.start(SCALEVEC, *words, "--runs", runs, **variables)

    def until_sent(self, runs: Path) -> None:
        """Wait until the sweep in ``runs`` is in the queue."""
        until(lambda: any(runs.glob("sweeps/*/slurm/*/places.json")), "all is sent")

    def assert_unharmed(self) -> None:
        """Nothing planted was run, by whomever, and the first user's files are what they were."""
        assert [path.read_text() for path in self.canary.iterdir()] == []
        assert {path: (self.first.home / path).read_text() for path in PRIVATE} == PRIVATE
        assert [path.name for path in (self.first.home / "thesis").iterdir()] == ["chapter-2.txt"]


def end_of(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code and messages; none of them is an internal error's."""
    out, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in range(4), messages
    assert not [word for word in ("Traceback", "internal error") if word in out + messages], messages
    return process.returncode, messages


def losses(runs: Path) -> dict[str, float]:
    results = {name: RunDirectory.of(runs, name).result() for name in trial_ids(runs)}
    return {name: result["loss"] for name, result in results.items() if result}


def prepared(member: GroupMember, text: Path, variables: dict[str, str]) -> GroupMember:
    """``member`` at work in a folder of his own with the sweeps."""
    folder = member.home / "lab"
    folder.mkdir()
    for file in text.glob("*.txt"):
        shutil.copy(file, folder)
    (folder / "small.yaml").write_text(two_arms("small", folder, 1, width=16, layers=1))
    (folder / "theirs.yaml").write_text(THEIRS)
    (folder / "train.py").write_text(SCRIPT)
    profiles = member.home / "profiles.yaml"
    profiles.write_text(PROFILES)
    member.give(member.home)
    return replace(member, folder=folder, variables=variables | {"SCALEVEC_PROFILES": str(profiles)})


@pytest.fixture(scope="module")
def lab(text_files) -> Iterator[Lab]:
    require_programs(*PROGRAMS)
    with (
        group_members(text_files) as (first, second),
        tempfile.TemporaryDirectory(prefix="scalevec-lab-") as name,
    ):
        folder, shared = Path(name), first.folder
        folder.chmod(0o755)
        (folder / "slurm").mkdir()
        (folder / "canary").mkdir()
        (folder / "canary").chmod(0o777)
        for path, content in PRIVATE.items():
            (first.home / path).parent.mkdir(exist_ok=True)
            (first.home / path).write_text(content)
        cluster = SlurmCluster(folder / "slurm", 17600, accounting=False)
        first, second = (prepared(user, text_files, cluster.environment) for user in (first, second))
        with contextmanager(running)(cluster):
            try:
                yield Lab(first, second, shared, cluster, folder / "canary")
            finally:
                for user in (first, second):
                    cluster.run("scancel", f"--user={user.name}", check=False)


ATTACKS = [*((level, "theirs") for level in LEVELS), ("the runs folder", "small")]
REFUSED = {
    "links": ((1,), "events.jsonl: is a link, where a file is expected"),
    # Whoever meets a link first, this process or the worker, says so: an end of the run or of its trial.
    "folders that are links": ((1, 3), "is a link, where a folder is expected"),
    "commands": ((1,), "trial.json: holds other fields than those of the trial with this id"),
}
"""How the run of the first user ends where its trials are not trained, and what it says."""


@dataclass(frozen=True)
class Attacked:
    """A sweep of the first user whose jobs waited while the second was at work: how its run ended."""

    runs: Path
    code: int
    messages: str


@pytest.fixture(scope="module")
def undisturbed(lab) -> Path:
    """A runs folder of the first user with both sweeps, trained to the end."""
    runs = lab.folder / "undisturbed"
    for process in [lab.run(lab.first, sweep, runs, *TRUSTED) for sweep in ("theirs", "small")]:
        code, messages = end_of(process)
        assert code == 0, messages
    return runs


@pytest.fixture(scope="module")
def attacked(lab) -> dict[tuple[str, str], Attacked]:
    """All attacks, while all jobs wait; then the jobs are released."""
    lab.hold_jobs()
    folders = {attack: lab.folder / "-".join(attack).replace(" ", "-") for attack in ATTACKS}
    started = {attack: lab.run(lab.first, attack[1], runs, *TRUSTED) for attack, runs in folders.items()}
    for (level, _), runs in folders.items():
        lab.until_sent(runs)
        succeeded(lab.second.run(sys.executable, "-I", INTRUDER, runs, lab.canary, lab.first.home, level))
    lab.release_jobs()
    return {attack: Attacked(folders[attack], *end_of(process)) for attack, process in started.items()}


@pytest.fixture(scope="module")
def repaired(lab, attacked) -> dict[tuple[str, str], Attacked]:
    """The same sweeps, run once more after what was replaced is back in its place."""
    started = {}
    for (level, sweep), attack in attacked.items():
        repair(attack.runs)
        if attack.code:
            assert lab.first.scalevec("retry", f"{sweep}.yaml", "--runs", attack.runs).returncode == 0
        started[level, sweep] = lab.run(lab.first, sweep, attack.runs, *PLAIN)
    return {key: Attacked(attacked[key].runs, *end_of(process)) for key, process in started.items()}


def test_the_canary_sings(tmp_path):
    """What is planted would be noticed if it ran."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "canary").mkdir()
    Intruder(tmp_path / "folder", tmp_path / "canary", tmp_path).plant(tmp_path / "folder")
    pickle.loads((tmp_path / "folder" / "evil.pkl").read_bytes())  # noqa: S301 (our own)
    subprocess.run([sys.executable, "-I", tmp_path / "folder" / "json.py"], check=True)
    subprocess.run(["bash", tmp_path / "folder" / "submit.sh"], check=True)
    assert len(list((tmp_path / "canary").iterdir())) == 3


@pytest.mark.parametrize("attack", ATTACKS, ids="-".join)
def test_jobs_that_wait_run_their_own_code_or_say_why_not(lab, attacked, attack):
    codes, words = REFUSED.get(attack[0], ((0,), ""))
    assert attacked[attack].code in codes, attacked[attack].messages
    assert words in attacked[attack].messages
    lab.assert_unharmed()


@pytest.mark.nightly
@pytest.mark.parametrize("attack", ATTACKS, ids="-".join)
def test_a_folder_that_was_repaired_is_trained_to_the_losses_of_an_undisturbed_one(
    lab, undisturbed, repaired, attack
):
    again, expected = repaired[attack], losses(undisturbed)
    assert again.code == 0, again.messages
    assert losses(again.runs) == {name: expected[name] for name in trial_ids(again.runs)}
    lab.assert_unharmed()


def test_a_job_whose_code_others_could_change_by_then_runs_nothing(lab):
    user, runs = lab.first.at_home(lab.folder.with_name("third")), lab.folder / "open-home"
    lab.hold_jobs()
    process = lab.run(user, "theirs", runs, *TRUSTED)
    lab.until_sent(runs)
    user.home.chmod(0o775)
    lab.release_jobs()
    code, messages = end_of(process)
    remedy = f"chmod go-w {user.home}"
    assert (code, remedy in messages) == (3, True), messages
    (trial,) = (RunDirectory.of(runs, name) for name in trial_ids(runs))
    job = trial.jobs()[-1]["job"].partition("/")[0]
    assert "ExitCode=3:0" in lab.slurm.run("scontrol", "show", "job", job)
    (log,) = user.home.glob(f".scalevec/slurm/*/{job}_0_log.err")
    assert remedy in log.read_text()
    assert {event["state"] for event in trial.events()} == {"queued"}
    assert not trial.log_path.exists()


TOKENS = [f"20260101T000000-deadbee{digit}" for digit in "0123"]
READING = (
    *(("status",), ("results",), ("plan",), ("explain", "TRIAL"), ("logs", "TRIAL")),
    *(("logs", "theirs"), ("doctor",), ("cancel",), ("run", *ON_SLURM, *PLAIN)),
)


@pytest.fixture(scope="module")
def hostile(lab, undisturbed) -> tuple[Path, str]:
    """A runs folder that the second hands to the first: the jobs of a trial are those of others, or none."""
    runs, second = lab.folder / "hostile", lab.second
    assert second.run("cp", "-r", undisturbed, runs).returncode == 0
    (trial,) = (path for path in runs.glob("trials/*/*") if (path / "out").exists())
    for name in ("result.json", "events.jsonl", "metrics.jsonl"):
        (trial / name).unlink()
    controller = runs / "sweeps" / "theirs" / "controller"
    controller.mkdir()
    outside = os.path.relpath(lab.first.home / "thesis", runs)
    sent = {  # their name, and the places of their trials
        TOKENS[0]: ("interactive,bash,sh,wrap", [[str(trial)]]),
        TOKENS[1]: ("bash", [[trial.relative_to(runs).as_posix()]]),
        TOKENS[2]: (f"theirs.s.{TOKENS[2]}", [[outside]]),
        TOKENS[3]: (f"theirs.s.{TOKENS[3]}", [["sweeps/theirs/controller/../../../../../first/thesis"]]),
    }
    for token, (name, places) in sent.items():
        folder = runs / "sweeps" / "theirs" / "slurm" / token
        folder.mkdir()
        sending = {"name": name, "directories": places, "tokens": [["x"]]}
        (folder / "sending.json").write_text(json.dumps(sending))
    (folder / "places.json").write_text(json.dumps({"jobs": {"1": places[0], "1;id": places[0]}}))
    for directory in (trial, controller):
        with (directory / "jobs.jsonl").open("a") as jobs:
            for number in [*(f"?0/0@{token}" for token in TOKENS), f"1/0@{TOKENS[3]}"]:
                record = {"executor": "slurm", "job": number, "token": "x", "time": "2999-01-01T00:00:00Z"}
                print(json.dumps(record), file=jobs)
    Intruder(runs, lab.canary, lab.first.home).plant_everywhere()
    second.give(runs)
    for user, name in ((lab.first, "bash"), (second, f"theirs.s.{TOKENS[2]}")):
        words = ("sbatch", "--begin=now+1hour", "--output=/dev/null", "-J", name, "--wrap", "sleep 1")
        assert user.run(*words).returncode == 0
    return runs, trial.name


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_folder_from_somebody_else_is_read_and_nothing_in_it_is_run(lab, hostile, words):
    runs, trial = hostile
    verb, *options = [trial if word == "TRIAL" else word for word in words]
    source = [] if verb in ("explain", "logs", "doctor") else ["theirs.yaml"]
    end_of(lab.first.start(SCALEVEC, verb, *options, *source, "--runs", runs))
    lab.assert_unharmed()
    assert {"bash", f"theirs.s.{TOKENS[2]}"} <= set(lab.names_in_queue())


def kill_worker(trial: RunDirectory) -> None:
    """kill -9 of the process that trains ``trial``; what it has started ends with it."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "scalevec.orchestrator.worker.train" in words and trial.trial_id in words:
            killed(process)


def users(trial: RunDirectory) -> list[str]:
    """Whose jobs the trial has had."""
    return [job["user"] for job in trial.jobs()]


DEADLY = """\
#!/bin/sh
{sbatch} "$@" > /dev/null
kill -9 $PPID
"""
"""An sbatch that is heard, and whose caller is killed before it hears the answer."""


def test_a_member_finishes_what_another_has_begun_with_the_same_losses(lab, undisturbed):
    """Of the first's two trials one trains and one waits, under numbers that their scheduler never heard."""
    runs, (first, second) = lab.folder / "common", (lab.first, lab.second)
    commands, held = first.home / "commands", can_hold({"PATH": os.environ["PATH"]})
    commands.mkdir()
    (commands / "sbatch").write_text(DEADLY.format(sbatch=shutil.which("sbatch")))
    (commands / "sbatch").chmod(0o755)
    hold(lab.folder)
    begun = lab.run(first, "small", runs, *NARROW, **held | {"PATH": f"{commands}:{held['PATH']}"})
    begun.communicate(timeout=PATIENCE_S)
    assert begun.returncode == -signal.SIGKILL
    trials = [RunDirectory.of(runs, name) for name in trial_ids(runs)]
    assert {job["job"][0] for trial in trials for job in trial.jobs()} == {"?"}
    until(lambda: any(newest_step(trial.checkpoints_path) for trial in trials), "one trains")
    succeeded(second.scalevec("status", "small", "--runs", runs))
    assert_refused(second.scalevec("cancel", "small", "--runs", runs), 2, f"belongs to {first.name}")
    goes_on = lab.run(second, "small", runs, *NARROW, **held)
    until(lambda: all(trial.jobs()[-1]["job"][0] != "?" for trial in trials), "the jobs are found")
    (trained,) = (trial for trial in trials if newest_step(trial.checkpoints_path))
    (waiting,) = (trial for trial in trials if trial != trained)
    release(lab.folder)
    kill_worker(trained)
    code, messages = end_of(goes_on)
    assert code == 0, messages
    assert [users(trained)[0], users(trained)[-1]] == [first.name, second.name]
    assert set(users(waiting)) == {first.name}
    assert (trained.result()["resumes"], waiting.result()["resumes"]) == (1, 0)
    assert losses(runs) == {name: losses(undisturbed)[name] for name in trial_ids(runs)}


def test_an_own_trainers_trial_of_another_starts_afresh(lab, undisturbed):
    runs, (first, second) = lab.folder / "afresh", (lab.first, lab.second)
    hold(second.folder)
    begun = lab.run(second, "theirs", runs, *TRUSTED)
    until(lambda: bool(list(runs.glob("trials/*/*/out/ckpt.pkl"))), "it trains")
    (trial,) = (RunDirectory.of(runs, name) for name in trial_ids(runs))
    until(lambda: trial.last_step() == 3, "it stands")
    begun.kill()
    begun.communicate()
    goes_on = lab.run(first, "theirs", runs, *PLAIN)
    kill_worker(trial)
    code, messages = end_of(goes_on)
    release(second.folder)
    assert code == 0, messages
    words = f"the trial starts afresh: {second.name} may have written its checkpoints"
    assert words in trial.log_path.read_text()
    assert set(users(trial)) == {first.name, second.name}
    assert trial.result()["resumes"] == 0
    assert losses(runs) == {trial.trial_id: losses(undisturbed)[trial.trial_id]}
