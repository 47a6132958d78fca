"""Two users of one group, with a folder that the group may write, as docs/shared-folders.md has it."""

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from support import CHECKOUT, SCALEVEC

GROUP = 60_123
NAMES = ("daemon", "bin")


@dataclass(frozen=True)
class GroupMember:
    """A user of this machine with the umask of a group, who works in ``folder``."""

    name: str
    home: Path
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def give(self, path: Path) -> Path:
        """Make ``path`` and what is in it this user's."""
        for within in (path, *path.rglob("*")):
            os.chown(within, pwd.getpwnam(self.name).pw_uid, GROUP)
        return path

    def at_home(self, home: Path) -> "GroupMember":
        """The same user with another home, which is made."""
        home.mkdir()
        return replace(self, home=self.give(home))

    def start(self, *command: object, **variables: str) -> "subprocess.Popen[str]":
        switch = ["setpriv", f"--reuid={self.name}", f"--regid={GROUP}", "--clear-groups"]
        # By a shell: setpriv itself starts its command with the rights of root still.
        words = [*switch, "sh", "-c", 'exec "$@"', "sh", *map(str, command)]
        environment = os.environ | {"HOME": str(self.home), "SCALEVEC_CACHE_DIR": str(self.home / "cache")}
        environment |= {**self.variables, **variables}
        for name in ("SCALEVEC_STORE", "SCALEVEC_PRIVATE_DIR"):
            environment.pop(name, None)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(words, cwd=self.folder, env=environment, umask=0o002, **pipes)

    def run(self, *command: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*command, **variables)
        out, err = process.communicate()
        return subprocess.CompletedProcess([str(word) for word in command], process.returncode, out, err)

    def scalevec(self, *arguments: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        return self.run(SCALEVEC, *arguments, **variables)


@contextmanager
def group_members(text: Path) -> Iterator[tuple[GroupMember, GroupMember]]:
    """Two users with a home each, at work in a folder that their group may write, which holds the texts.

    New files in it inherit the group.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can become two users")
    with readable_python(), tempfile.TemporaryDirectory(prefix="scalevec-group-") as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "shared"
        folder.mkdir()
        os.chown(folder, 0, GROUP)
        folder.chmod(0o2775)
        for file in text.glob("*.txt"):
            (folder / file.name).write_bytes(file.read_bytes())
        first, second = (GroupMember(user, Path(), folder) for user in NAMES)
        yield first.at_home(Path(name) / "first"), second.at_home(Path(name) / "second")


@contextmanager
def readable_python() -> Iterator[None]:
    """Let all users read our checkout and its Python where these lie in a folder of root's.

    That folder is hidden, in the namespace of these tests, by an empty one that holds only them.
    """
    needed = {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), CHECKOUT}
    closed = {path for folder in needed for path in folder.parents if not path.stat().st_mode & 0o001}
    with ExitStack() as stack:
        for folder in sorted(closed)[:1]:
            aside = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scalevec-aside-")))
            within = [path.relative_to(folder) for path in needed if path.is_relative_to(folder)]
            _mount(stack, "--bind", folder, aside)
            _mount(stack, "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
            for path in within:
                (folder / path).mkdir(parents=True, exist_ok=True)
                _mount(stack, "--bind", aside / path, folder / path)
        yield


def _mount(stack: ExitStack, *words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)
    stack.callback(subprocess.run, ["umount", "--lazy", str(words[-1])], check=True)
