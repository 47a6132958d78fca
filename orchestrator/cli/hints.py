"""The commands that a message suggests, as they have to be given to reach the same runs and machines."""

import itertools
import os
import shlex
from pathlib import Path
from typing import Any


def command(verb: str, source: str | None, runs_dir: Path | None = None, **options: Any) -> str:
    """Return ``scalevec VERB SOURCE`` with those ``options`` that are given (True: a flag; a list: each).

    With ``--runs`` where the command would look elsewhere, and with the simulating executor where ``run``
    would find simulations.
    """
    from scalevec.orchestrator.executors.registry import SIMULATOR
    from scalevec.orchestrator.executors.simulate.runs_folder import is_simulated

    default = Path(os.environ.get("SCALEVEC_RUNS_DIR", "runs"))
    runs_dir = runs_dir or default
    given: dict[str, Any] = {"runs": None if runs_dir == default else runs_dir, **options}
    if verb == "run" and is_simulated(runs_dir):
        given["executor"] = SIMULATOR
    words = [
        [f"--{name}"] if value is True else [f"--{name}", str(value)]
        for name, values in given.items()
        for value in (values if isinstance(values, list) else [values])
        if value
    ]
    return shlex.join(["scalevec", *verb.split(), *([source] if source else []), *itertools.chain(*words)])
