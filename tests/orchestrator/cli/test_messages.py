"""The messages that users meet most, word for word: what is wrong, where, the value, what to do."""

import yaml

from recorded_sweep import directory_of
from scalevec import sweeps
from scalevec.orchestrator.cli.output import json_text
from scalevec.orchestrator.executors.ray import connection
from scalevec.orchestrator.executors.registry import EXECUTORS
from simulations import SWEEP

SHIPPED = sweeps.shipped("quickstart")


def write_sweep(folder, **sections) -> None:
    (folder / "my.yaml").write_text(yaml.safe_dump(SWEEP | sections, sort_keys=False))


def assert_refused(done, message: str) -> None:
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"scalevec: {message}\n")


def test_unknown_key(command, tmp_path):
    write_sweep(tmp_path, lader=["tiny-25k"])
    assert_refused(
        command("plan", "my.yaml"),
        "my.yaml:28: lader: unknown key; did you mean ladder? (allowed: name, plugins, corpus, trainer, "
        "fields, n_params, trial, ladder, tokens_per_parameter, tokens, flops, optimizers and 13 more)",
    )


def test_no_such_sweep(command):
    assert_refused(
        command("run", "absent"),
        "absent: no such file (.yaml, .yml, .csv, .parquet), no sweep of that name in runs (there are none), "
        f"and no sweep called 'absent' is shipped; {SHIPPED.parent} has all {len(sweeps.shipped_names())}",
    )


def test_a_misspelt_sweep_is_answered_by_the_nearest_ones(command):
    done = command("run", "quikstart")
    words = "no sweep called 'quikstart' is shipped; nearest: quickstart, templates/quickstart\n"
    assert done.stderr.endswith(words)


def test_a_device_is_not_said_to_be_absent(command):
    assert_refused(command("plan", "/dev/zero"), "/dev/zero is no regular file; copy what it holds into one")


def test_no_such_trial(command, tmp_path):
    directory_of(tmp_path / "runs", "none", 0)
    assert_refused(
        command("explain", "abcd"),
        "no trials in runs match prefix 'abcd'; give at least 4 hexadecimal digits of the id, enough to be "
        "unique",
    )


def test_unknown_arm(command, tmp_path):
    (tmp_path / "t.csv").write_text("arm,n_params,n_tokens,loss\na,1000,20000,3\nb,1000,20000,3\n")
    done = command("compare", "t.csv", "--reference", "c")
    assert_refused(done, "reference is 'c', which is no arm; allowed: a, b")


def test_missing_column(command, tmp_path):
    (tmp_path / "t.csv").write_text("n_param,n_tokens,loss\n1000,20000,3\n")
    assert_refused(command("fit", "t.csv"), "the table has no column 'n_params'; nearest: 'n_param'")


def test_wrong_executor(command, tmp_path):
    write_sweep(tmp_path)
    assert_refused(
        command("run", "my.yaml", "--executor", "cloud"),
        f"--executor is 'cloud'; allowed: {', '.join(EXECUTORS)}",
    )


def test_no_runs(command, tmp_path):
    write_sweep(tmp_path)
    assert_refused(
        command("results", "my.yaml"),
        "sweep simulated has not been run in runs; to run it: scalevec run my.yaml --runs runs",
    )


def test_missing_extra(command, tmp_path, monkeypatch):
    write_sweep(tmp_path)
    monkeypatch.setattr(connection, "find_spec", lambda _: None)
    done = command("run", "my.yaml", "--executor", "ray")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("scalevec: executor 'ray' needs Ray, which is not installed: pip install ")


def test_json_has_null_for_a_number_that_is_infinite():
    assert '"value": null' in json_text([{"value": float("inf"), "interval": (1.0, float("nan"))}])
