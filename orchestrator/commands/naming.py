"""The commands that a message names, as they have to be given to reach the same runs and machines."""

import itertools
import os
import shlex
from pathlib import Path


def command(verb: str, source: str, runs_dir: Path, **options: str | bool | None) -> str:
    """``scalevec VERB SOURCE`` with those ``options`` that are given (True: a flag).

    With ``--runs`` where the command would look elsewhere.
    """
    looked = Path(os.environ.get("SCALEVEC_RUNS_DIR", "runs"))
    given = {"runs": None if runs_dir == looked else str(runs_dir), **options}
    words = [
        [f"--{name}"] if value is True else [f"--{name}", str(value)]
        for name, value in given.items()
        if value
    ]
    return shlex.join(["scalevec", verb, source, *itertools.chain(*words)])
