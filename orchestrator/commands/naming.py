"""The commands that a message names, as they have to be given to reach the same runs and machines."""

import os
import shlex
from pathlib import Path


def command(verb: str, source: str, runs_dir: Path, **options: str | None) -> str:
    """``scalevec VERB SOURCE``; with ``--runs`` where the command would look elsewhere."""
    looked = Path(os.environ.get("SCALEVEC_RUNS_DIR", "runs"))
    given = {"runs": None if runs_dir == looked else str(runs_dir), **options}
    words = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    return shlex.join(["scalevec", verb, source, *words])
