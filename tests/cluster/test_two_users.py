"""A runs folder of two users of one group: what one may do with what the other has made, and what not."""

import json
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.group_members import GROUP, GroupMember, group_members
from support import SCALEVEC, assert_refused, succeeded, two_arms, wait_until


@pytest.fixture(scope="module")
def members(text_files) -> Iterator[tuple[GroupMember, GroupMember]]:
    with group_members(text_files) as both:
        yield both


@pytest.fixture(scope="module")
def trained(members) -> tuple[GroupMember, GroupMember]:
    """The first has trained a sweep."""
    first, _ = members
    (first.folder / "small.yaml").write_text(two_arms("small", first.folder, 1, width=16, layers=1))
    succeeded(first.scalevec("run", "small.yaml"))
    return members


READING = (
    ("status", "small"),
    ("results", "small"),
    ("compare", "small"),
    ("table", "small"),
    ("report", "small", "-o", "report.html"),
    ("figures", "small", "-o", "figures"),
    ("store", "rebuild"),
    ("corpus", "inspect", "small.yaml"),
    ("corpus", "prepare", "small.yaml"),
    ("plan", "small.yaml"),
    ("retry", "small"),
    ("cancel", "small"),
    ("run", "small.yaml"),
)


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_every_command_works_on_what_another_user_has_trained(trained, words):
    done = succeeded(trained[1].scalevec(*words))
    assert "denied" not in done.stderr


def test_each_of_them_may_add_to_the_others_sweep(trained):
    _, second = trained
    wider = (second.folder / "small.yaml").read_text().replace("seeds: [0]", "seeds: [0, 1]")
    (second.folder / "wider.yaml").write_text(wider)
    done = succeeded(second.scalevec("run", "wider.yaml", "--json"))
    assert json.loads(done.stdout)["trials"] == 4
    assert trained[0].scalevec("run", "wider.yaml").returncode == 0


def test_what_one_writes_the_group_may_write_and_code_that_is_run_lies_elsewhere(trained):
    paths = list((trained[0].folder / "runs").rglob("*"))
    assert len(paths) > 20
    assert [path for path in paths if not path.stat().st_mode & stat.S_IWGRP] == []
    assert {path.stat().st_gid for path in paths} == {GROUP}
    assert not [path for path in paths if path.suffix in (".py", ".pyc", ".sh", ".pkl")]
    private = trained[0].home / ".scalevec"
    assert list(private.glob("snapshots/*/scalevec/orchestrator/snapshots/start.py"))
    assert not private.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def test_cancelling_the_job_of_another_user_is_refused_with_the_name(members):
    first, second = members
    (first.folder / "long.yaml").write_text(two_arms("long", first.folder, 4000))
    running = first.start(SCALEVEC, "run", "long.yaml")
    try:
        runs = first.folder / "runs"
        wait_until(lambda: [p for p in runs.glob("trials/*/*/claims/*.json") if "long" in first_sweep(p)])
        assert_refused(second.scalevec("cancel", "long"), 2, f"belongs to {first.name}")
        assert running.poll() is None
        assert "cancelled" not in second.scalevec("status", "long").stdout
        succeeded(first.scalevec("cancel", "long"))
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate()


def first_sweep(claim: Path) -> str:
    return str(json.loads((claim.parents[1] / "trial.json").read_text())["descriptive"]["first_sweep"])
