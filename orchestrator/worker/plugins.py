"""The plugins of the snapshot that a process runs from: loaded for a trial, or looked at on a machine.

``python -P -m scalevec.orchestrator.worker.plugins`` imports all of them and prints what is wrong.
"""

import importlib
import sys
import traceback
from pathlib import Path

from scalevec.model.config import Trial
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.sweeps.plugins.locate import Plugin, PluginError, sent_folder, sent_plugins
from scalevec.sweeps.plugins.registered import register


def load_plugins(trial: Trial) -> None:
    """Register and import what ``trial`` needs. Raises ``DefiniteError`` where that is not what was sent."""
    sent = {plugin.identity: plugin for plugin in sent_plugins()} if trial.plugins else {}
    for needed in trial.plugins:
        if needed not in sent:
            there = ", ".join(f"{known.module} {known.source[:12]}" for known in sent) or "none"
            raise DefiniteError(
                f"the trial needs the plugin {needed.module} with the source {needed.source[:12]}; "
                f"this worker was sent with: {there}"
            )
        try:
            register(sent[needed])
            require_importable(sent[needed], sent_folder())
        except PluginError as error:
            raise DefiniteError(str(error)) from error


def require_importable(plugin: Plugin, folder: Path | None) -> None:
    """Import ``plugin``, which has to come from ``folder``. Raises ``PluginError`` for whatever it raises."""
    try:
        module = importlib.import_module(plugin.module)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        text = f"cannot be imported: {type(error).__name__}: {error} ({where})"
        raise PluginError(f"{plugin.module}: {text}") from error
    if folder is None or not Path(str(module.__file__)).resolve().is_relative_to(folder):
        raise PluginError(f"{plugin.module}: comes from {module.__file__}, not from what was sent")


def problems_here() -> list[str]:
    """What keeps plugins of this process's snapshot from being imported here."""
    problems = []
    for plugin in sent_plugins():
        try:
            require_importable(plugin, sent_folder())
        except PluginError as error:
            problems.append(str(error))
    return problems


def main() -> int:
    """Print what is wrong; 0 where nothing is."""
    problems = problems_here()
    for problem in problems:
        note(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
