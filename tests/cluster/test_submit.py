"""``submit`` on a real SLURM: a controller job runs the stages, and every command works from elsewhere."""

import json
import os
import subprocess
import time

import pytest

from cluster.test_slurm_training import losses
from hold import can_hold, hold, release
from support import SCALEVEC, finished, succeeded

pytestmark = pytest.mark.slow

PATIENCE_S = 900

SWEEP = """\
name: sent
corpus: {{source: text, files: ["{text}/*.txt"], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 256}}
ladder:
  - {{name: a, width: 16, layers: 1}}
tokens_per_parameter: [{tokens}]
arms:
  baseline: {{scale_vectors: baseline}}
tune: {{learning_rate: [0.01, 0.02, 0.04], rungs: [a], seeds: [100], extend: 0}}
seeds: [0]
resources: {{default: {{checkpoint_s: 0.5}}}}
"""
PROFILES = """\
here:
  {executor: slurm, poll_s: 0.2, memory_gb: 1.5, rungs: {controller: {memory_gb: 1.5}}}
nowhere: {executor: slurm, partition: nowhere}
broken: {executor: slurm, poll_s: 0.2, rungs: {controller: {memory_gb: 1.5, setup: [exit 3]}}}
"""


@pytest.fixture
def scalevec(slurm_commands, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "profiles.yaml").write_text(PROFILES)
    environment = can_hold(os.environ) | {"SCALEVEC_CACHE_DIR": str(tmp_path / "cache")}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(SCALEVEC), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    yield call
    slurm_commands.run("scancel", "--user=root")


def until(condition, explain) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.5)


def states(scalevec) -> dict[str, int]:
    return json.loads(scalevec("status", "sent", "--json").stdout)[0]["states"]


def test_a_sweep_is_sent_tuned_and_compared_without_us(scalevec, tmp_path, tmp_path_factory, text_files):
    sweep = SWEEP.format(text=text_files, tokens=8)
    (tmp_path / "sent.yaml").write_text(sweep)
    hold(tmp_path)  # else a fast cluster would be done before the second word
    succeeded(scalevec("submit", "sent.yaml", "--profile", "here"))
    again = scalevec("submit", "sent.yaml", "--profile", "here")
    assert "already queued" in again.stdout, again.stderr
    release(tmp_path)
    log = tmp_path / "runs/sweeps/sent/controller/log.txt"
    until(lambda: states(scalevec) == {"completed": 4}, lambda: log.read_text() if log.exists() else "no log")
    local = finished(tmp_path_factory.mktemp("local"), sweep)
    assert losses(tmp_path) == losses(local)


def test_a_sweep_that_was_sent_is_cancelled_from_elsewhere(scalevec, slurm_commands, tmp_path, text_files):
    (tmp_path / "sent.yaml").write_text(SWEEP.format(text=text_files, tokens=4000))
    assert scalevec("submit", "sent.yaml", "--profile", "here").returncode == 0
    until(lambda: states(scalevec).get("running", 0) > 0, lambda: states(scalevec))
    succeeded(scalevec("cancel", "sent", "--profile", "here"))
    until(lambda: not slurm_commands.run("squeue", "-h").strip(), lambda: slurm_commands.run("squeue"))
    assert set(states(scalevec)) <= {"cancelled", "completed"}


def test_a_watch_ends_where_the_controller_failed_before_it_began(scalevec, tmp_path, text_files):
    (tmp_path / "sent.yaml").write_text(SWEEP.format(text=text_files, tokens=8))
    assert scalevec("submit", "sent.yaml", "--profile", "broken", "--trust").returncode == 0
    watched = succeeded(scalevec("status", "sent", "--watch", "--json"))
    last = json.loads(watched.stdout.splitlines()[-1])
    assert (last["states"], last["owned"]) == ({"pending": 3}, False)


def test_a_profile_is_written_from_what_slurm_says_and_plans_with_its_limits(scalevec, tmp_path, text_files):
    (tmp_path / "sent.yaml").write_text(SWEEP.format(text=text_files, tokens=8))
    succeeded(scalevec("init", "--profile", "asked", "-o", "asked.yaml"))
    assert "partition: " in (tmp_path / "asked.yaml").read_text()
    with (tmp_path / "profiles.yaml").open("a") as profiles:
        profiles.write((tmp_path / "asked.yaml").read_text())
    planned = succeeded(scalevec("plan", "sent.yaml", "--profile", "asked", "--script"))
    assert "#SBATCH --partition=" in planned.stdout
