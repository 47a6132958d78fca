"""The commands that a message suggests, as they have to be given to reach the same runs and machines."""

import itertools
import os
import shlex
from pathlib import Path


def command(verb: str, source: str | None, runs_dir: Path, **options: str | bool | int | Path | None) -> str:
    """Return ``scalevec VERB SOURCE`` with those ``options`` that are given (True: a flag).

    With ``--runs`` where the command would look elsewhere, and with the simulating executor where ``run``
    would find simulations.
    """
    from scalevec.orchestrator.executors.registry import SIMULATOR
    from scalevec.orchestrator.executors.simulate.runs_folder import is_simulated

    default = Path(os.environ.get("SCALEVEC_RUNS_DIR", "runs"))
    given = {"runs": None if runs_dir == default else runs_dir, **options}
    if verb == "run" and is_simulated(runs_dir):
        given["executor"] = SIMULATOR
    words = [
        [f"--{name}"] if value is True else [f"--{name}", str(value)]
        for name, value in given.items()
        if value
    ]
    return shlex.join(["scalevec", *verb.split(), *([source] if source else []), *itertools.chain(*words)])
