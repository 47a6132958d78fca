"""The private folder: where everything lies that scalevec executes later, out of other users' reach.

RUNS_DIR may be shared, so what lies there is data alone. Snapshots of code, the files of own trainers and
what a job of SLURM is to run lie here instead: in ``~/.scalevec``, which all nodes have to see, or in what
``private_dir`` of a profile, or the environment variable ``SCALEVEC_PRIVATE_DIR``, names.
"""

import os
import pwd
import shlex
import shutil
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from scalevec.orchestrator.errors import MissingRequirementError

VARIABLE = "SCALEVEC_PRIVATE_DIR"
DEFAULT = "~/.scalevec"
KEPT_S = 60 * 24 * 3600.0
"""What no process has started from for so long is removed: longer than a job waits in a queue."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_folder(named: str | None = None, runs_dir: Path | None = None) -> Path:
    """Return the private folder, without links in its path; it is made where it is not there.

    A process that runs from a snapshot keeps to the folder that holds it.

    Args:
        named: ``private_dir`` of the profile.
        runs_dir: What it has to lie outside of.

    Raises:
        MissingRequirementError: Another user could change what lies there.
    """
    folder = _around_this_snapshot() or Path(named or os.environ.get(VARIABLE) or DEFAULT).expanduser()
    try:
        make_private(folder)
    except OSError as error:
        raise MissingRequirementError(
            f"{folder}: {error.strerror}; code that is sent lies there: name another folder of yours with "
            f"private_dir in the profile, or {VARIABLE}"
        ) from None
    folder = folder.resolve()
    if runs_dir is not None and folder.is_relative_to(runs_dir.resolve()):
        raise MissingRequirementError(
            f"{folder}: lies in the runs folder {runs_dir}, which others may write; name a folder "
            f"outside of it with private_dir in the profile, or {VARIABLE}"
        )
    if problem := who_may_change(folder):
        raise MissingRequirementError(f"{folder}: others could change code that runs as you: {problem}")
    return folder


def make_private(folder: Path) -> None:
    """Make ``folder``, and what is absent above it, for this user alone, whatever the umask."""
    for path in (*reversed(folder.parents), folder):
        if not path.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)


def _around_this_snapshot() -> Path | None:
    root = Path(__file__).resolve().parents[2]
    return root.parents[1] if (root / "origin.json").is_file() else None


def who_may_change(path: Path) -> str | None:
    """Return which folder lets another user replace what lies at ``path``, and the remedy; None for nobody.

    ``path``, a file or a folder, has no links in it. It and every folder above it have to belong to this user
    or to root, and nobody else may write there; above it a sticky bit, as ``/tmp`` has, is as good.
    """
    for part in (path, *path.parents):
        state = part.lstat()
        if state.st_uid not in (os.geteuid(), 0):
            return f"{part} belongs to {name_of_user(state.st_uid)}; choose a folder below one of your own"
        is_sticky = part != path and state.st_mode & stat.S_ISVTX
        if state.st_mode & OTHERS_WRITE and not is_sticky:
            return f"others may write in {part}; to repair it: chmod go-w {shlex.quote(str(part))}"
    return None


def name_of_user(uid: int) -> str:
    """Return the name of the user with this number, as far as there is one."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def shell_check(paths: Iterable[Path]) -> str:
    """Return a line of shell that ends a script where :func:`who_may_change` would find fault with a folder.

    A batch script makes this check on the node before it runs anything: weeks may lie between.
    """
    folders = dict.fromkeys(str(folder) for path in paths for folder in (*reversed(path.parents), path))
    asked = shlex.join(folders)
    wrong = r"\( ! -type d -o ! \( -user $(id -u) -o -user 0 \) -o -perm /022 ! -perm -1000 \)"
    message = "scalevec: others could change the code of this job, or it is gone:"
    return (
        f'wrong=$(find {asked} -maxdepth 0 {wrong} 2>&1); [ -z "$wrong" ] || '
        f'{{ echo "{message} $wrong; to repair it: chmod go-w" $wrong >&2; exit 3; }}'
    )


def drop_unused(folder: Path) -> None:
    """Remove what lies in ``folder`` and was not used for long: its time is set at each use."""
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                if path.is_dir() and time.time() - path.stat().st_mtime > KEPT_S:
                    shutil.rmtree(path, ignore_errors=True)
