"""PostgreSQL keeps the contract of a store, its password stays secret, and a sweep does without it."""

import json
import os
import secrets
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from contracts.store_contract import *  # noqa: F403
from contracts.store_contract import make_trial
from hold import can_hold, hold, release
from scalevec.results.index.database import StoreUnavailableError, parse_url, trials
from scalevec.results.index.store import ResultsIndex
from support import SCALEVEC, succeeded

PATIENCE_S = 600
SWEEP = """\
name: small
corpus: {{source: text, files: ["{text}/*.txt"], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 256}}
ladder:
  - {{name: a, width: 16, layers: 1}}
tokens_per_parameter: [4]
arms:
  baseline: {{scale_vectors: baseline}}
  none: {{scale_vectors: none}}
seeds: [0, 1]
compare: {{reference: baseline, margin: 0.005}}
resources: {{default: {{checkpoint_s: 0.1}}}}
"""


@pytest.fixture
def url(postgres_url):
    return postgres_url


@pytest.fixture
def new_url(postgres):
    return lambda: postgres.create(f"scalevec_{secrets.token_hex(6)}")


@pytest.fixture
def call(tmp_path, url):
    """Calls scalevec with the store in the environment; every word it ever says is kept."""
    messages: list[str] = []

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"SCALEVEC_STORE": url, "SCALEVEC_CACHE_DIR": str(tmp_path / "cache")}
        command = [str(SCALEVEC), *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        messages.extend([done.stdout, done.stderr])
        return done

    run.messages = messages
    return run


@pytest.fixture
def sweep_file(tmp_path, text_files):
    path = tmp_path / "small.yaml"
    path.write_text(SWEEP.format(text=text_files))
    return path


def everything_written(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_the_password_is_in_nothing_that_is_written_or_said(postgres, call, sweep_file, tmp_path):
    assert call("run", "small.yaml", "--jobs", "2").returncode == 0
    name = next((tmp_path / "runs" / "trials").glob("*/*")).name
    for command in (
        ["status"],
        ["explain", name],
        ["report", "small"],
        ["store", "rebuild"],
        ["results", "small"],
    ):
        succeeded(call(*command))
    assert not (tmp_path / "cache").exists()  # where the index would be without a server
    assert postgres.password.encode() not in everything_written(tmp_path)
    assert postgres.password not in "".join(call.messages)


def test_a_wrong_password_is_one_message_without_it(postgres, url):
    wrong = url.replace(postgres.password, "not-the-password")
    with pytest.raises(StoreUnavailableError, match="password authentication failed") as caught:
        ResultsIndex(wrong)
    assert "not-the-password" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_of_statements_show_neither_password_nor_rows(postgres, url, runs_dir):
    with ResultsIndex(url) as index:
        engine = sa.create_engine(parse_url(url))
        with engine.begin() as connection:
            connection.exec_driver_sql(f"ALTER TABLE {trials.name} DROP COLUMN record")
        engine.dispose()
        with pytest.raises(StoreUnavailableError, match="record") as caught:
            index.collect(runs_dir)
    assert postgres.password not in str(caught.value)
    assert "adamw" not in str(caught.value)


def test_a_role_that_may_create_nothing_is_told_so(postgres, new_url):
    url = new_url()
    engine = sa.create_engine(parse_url(url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS reader")
        connection.exec_driver_sql(f"CREATE ROLE reader LOGIN PASSWORD '{postgres.password}'")
    engine.dispose()
    with pytest.raises(StoreUnavailableError, match="permission denied"):
        ResultsIndex(url.replace("://postgres:", "://reader:"))


def wait_for(folder: Path, path: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not list(folder.glob(f"runs/trials/*/*/{path}")):
        assert time.monotonic() < deadline, f"there is never a {path}"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_store_that_stops_mid_sweep_stops_nothing_and_catches_up(postgres, url, call, sweep_file, tmp_path):
    call("plan", "small.yaml")
    assert call("status").returncode == 0
    environment = can_hold(os.environ) | {"SCALEVEC_STORE": url}
    hold(tmp_path)
    running = subprocess.Popen(
        [str(SCALEVEC), "run", "small.yaml", "--jobs", "1"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(tmp_path, "checkpoints/step-*")
    psutil.Process(running.pid).suspend()  # the first trial ends now, and no other begins
    release(tmp_path)
    wait_for(tmp_path, "result.json")
    assert call("status", "small").returncode == 0
    postgres.stop()
    try:
        psutil.Process(running.pid).resume()
        output, errors = running.communicate(timeout=PATIENCE_S)
        away = call("status")
    finally:
        postgres.start()
    assert running.returncode == 0, errors
    assert "4 trials, 4 completed" in output
    assert "warning: store postgresql+psycopg://postgres:***@" in errors
    assert postgres.password not in output + errors
    assert away.returncode == 3
    assert "Traceback" not in away.stderr
    states = json.loads(call("status", "--json").stdout)[0]["states"]
    assert states == {"completed": 4}
    with ResultsIndex(url) as index:
        assert len(index.rows(tmp_path / "runs")) == 4


def test_an_index_that_is_open_outlives_a_restart_of_its_server(postgres, url, runs_dir):
    with ResultsIndex(url) as index:
        index.collect(runs_dir)
        postgres.stop()
        with pytest.raises(StoreUnavailableError):
            index.collect(runs_dir)
        make_trial(runs_dir, 7)
        postgres.start()
        assert index.collect(runs_dir).added == 1
