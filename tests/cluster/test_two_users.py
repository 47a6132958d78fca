"""A runs folder of two users of one group: what one may do with what the other has made, and what not."""

import json
import os
import pwd
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import SCALEVEC, two_arms

GROUP = 60_123
NAMES = ("daemon", "bin")
PATIENCE_S = 120
READS_ANYTHING = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
"""Where our checkout or its Python lies in a folder of root's: nobody may write more by it, nor signal."""


@dataclass(frozen=True)
class GroupMember:
    """A user of this machine with the umask of a group; ``folder`` belongs to the group."""

    name: str
    folder: Path
    rights: tuple[str, ...] = ()

    def start(self, *command: object) -> "subprocess.Popen[str]":
        switch = ["setpriv", f"--reuid={self.name}", f"--regid={GROUP}", "--clear-groups", *self.rights]
        home = self.folder.parent / self.name
        environment = os.environ | {"HOME": str(home), "SCALEVEC_CACHE_DIR": str(home / "cache")}
        for name in ("SCALEVEC_STORE", "SCALEVEC_PRIVATE_DIR"):
            environment.pop(name, None)
        words = [*switch, *map(str, command)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(words, cwd=self.folder, env=environment, umask=0o002, **pipes)

    def scalevec(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        process = self.start(SCALEVEC, *arguments)
        out, err = process.communicate()
        return subprocess.CompletedProcess([str(word) for word in arguments], process.returncode, out, err)


@pytest.fixture(scope="module")
def members(text_files) -> Iterator[tuple[GroupMember, GroupMember]]:
    """Two users with a folder that their group may write and new files inherit the group of."""
    if os.geteuid() != 0:
        pytest.skip("only root can become two users")
    with tempfile.TemporaryDirectory(prefix="scalevec-group-") as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "shared"
        folder.mkdir()
        os.chown(folder, 0, GROUP)
        folder.chmod(0o2775)
        for user in NAMES:
            (Path(name) / user).mkdir()
            os.chown(Path(name) / user, pwd.getpwnam(user).pw_uid, GROUP)
        for path in text_files.glob("*.txt"):
            (folder / path.name).write_bytes(path.read_bytes())
        first, second = (GroupMember(user, folder) for user in NAMES)
        # By a shell: setpriv itself starts its command with the rights of root still.
        if first.start("sh", "-c", f"{SCALEVEC} --help > {os.devnull}").wait():
            first, second = (GroupMember(user, folder, READS_ANYTHING) for user in NAMES)
        yield first, second


@pytest.fixture(scope="module")
def trained(members) -> tuple[GroupMember, GroupMember]:
    """The first has trained a sweep."""
    first, _ = members
    (first.folder / "small.yaml").write_text(two_arms("small", first.folder, 1, width=16, layers=1))
    done = first.scalevec("run", "small.yaml")
    assert done.returncode == 0, done.stderr
    return members


READING = (
    ("status", "small"),
    ("results", "small"),
    ("compare", "small"),
    ("table", "small"),
    ("report", "small", "-o", "report.html"),
    ("figures", "small", "-o", "figures"),
    ("collect", "small"),
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
    done = trained[1].scalevec(*words)
    assert done.returncode == 0, done.stderr
    assert "denied" not in done.stderr


def test_each_of_them_may_add_to_the_others_sweep(trained):
    _, second = trained
    wider = (second.folder / "small.yaml").read_text().replace("seeds: [0]", "seeds: [0, 1]")
    (second.folder / "wider.yaml").write_text(wider)
    done = second.scalevec("run", "wider.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == 4
    assert trained[0].scalevec("run", "wider.yaml").returncode == 0


def test_what_one_writes_the_group_may_write_but_no_code_that_is_run(trained):
    runs = trained[0].folder / "runs"
    snapshots = runs / "snapshots"
    paths = [path for path in runs.rglob("*") if not path.is_relative_to(snapshots)]
    assert len(paths) > 20
    assert [path for path in paths if not path.stat().st_mode & stat.S_IWGRP] == []
    assert {path.stat().st_gid for path in paths} == {GROUP}
    code = [path for user in snapshots.iterdir() for path in (user, *user.rglob("*"))]
    assert [path for path in code if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)] == []


def wait_until(holds) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def test_cancelling_the_job_of_another_user_is_refused_with_the_name(members):
    first, second = members
    (first.folder / "long.yaml").write_text(two_arms("long", first.folder, 4000))
    running = first.start(SCALEVEC, "run", "long.yaml")
    try:
        runs = first.folder / "runs"
        wait_until(lambda: [p for p in runs.glob("trials/*/*/claims/*.json") if "long" in first_sweep(p)])
        refused = second.scalevec("cancel", "long")
        assert refused.returncode == 2, refused.stderr
        assert f"belongs to {first.name}" in refused.stderr
        assert running.poll() is None
        assert "cancelled" not in second.scalevec("status", "long").stdout
        done = first.scalevec("cancel", "long")
        assert done.returncode == 0, done.stderr
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate()


def first_sweep(claim: Path) -> str:
    return str(json.loads((claim.parents[1] / "trial.json").read_text())["descriptive"]["first_sweep"])
