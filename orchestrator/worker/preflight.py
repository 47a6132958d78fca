"""A worker's first second: what its machine lacks for the trial that was sent to it.

Each worker looks before it claims its trial, so each machine is looked at, whenever a job comes to it, and a
scheduler that is gone by then is not needed. What follows is ``scheduling.scheduler``'s.

``python -P -m scalevec.orchestrator.worker.preflight`` imports the plugins of the snapshot that it runs from,
and prints what is wrong.
"""

import importlib
import importlib.metadata
import platform
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalevec.model.config import RunOptions, Trial
from scalevec.model.data import CorpusError
from scalevec.model.data.corpus import open_corpus, verify
from scalevec.model.train.devices import missing_compiler
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.sweeps.plugins.locate import Plugin, PluginError, sent_folder, sent_plugins
from scalevec.sweeps.plugins.registered import register
from scalevec.sweeps.trainers.any_trial import is_foreign

OURS = "scalevec"


def lacking(
    runs_dir: Path, fields: dict[str, Any], options: RunOptions, versions: Mapping[str, str | None]
) -> list[str]:
    """Return what this machine lacks, each for a person; nothing where the trial may train.

    Args:
        runs_dir: Where the corpora are.
        fields: The semantic fields of the trial.
        options: How it is to be run.
        versions: What has to be the same here as where the trial was sent from.
    """
    corpora = [] if is_foreign(fields) else [str(fields["corpus"])]
    return [
        *_unlike(versions),
        *_without_device(options),
        *(f"plugin: {problem}" for problem in problems_here()),
        *(problem for fingerprint in corpora for problem in _without_corpus(runs_dir, fingerprint)),
    ]


def versions_to_send(interpreter: Sequence[str]) -> dict[str, str | None]:
    """Return what the event that queues a trial says of this process, which sends it.

    Another ``interpreter`` may be another Python, with another torch.
    """
    here = _versions_here()
    return here if tuple(interpreter) == (sys.executable,) else {OURS: here[OURS]}


def versions_sent_with(events: Sequence[Mapping[str, Any]], job: str) -> dict[str, str | None]:
    """Return what :func:`versions_to_send` was when ``job`` (its token) was sent; nothing if nobody says."""
    for event in reversed(events):
        if event["state"] == "queued" and event.get("job") == job and isinstance(event.get("versions"), dict):
            return dict(event["versions"])
    return {}


def version_of(package: str) -> str | None:
    """Return the version of an installed distribution; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _versions_here() -> dict[str, str | None]:
    return {"Python": platform.python_version(), "torch": version_of("torch"), OURS: version_of(OURS)}


def _unlike(versions: Mapping[str, str | None]) -> Iterator[str]:
    here = _versions_here() if versions else {}
    for name, sent in versions.items():
        if here.get(name) != sent:
            yield f"{name}: {here.get(name)} there, {sent} where it was sent from"


def _without_device(options: RunOptions) -> Iterator[str]:
    import torch

    # Not is_available(), which begins with CUDA: the ranks of the trial are forks of this process.
    if options.device == "cuda" and not torch.cuda.device_count():
        yield f"CUDA: torch {torch.__version__} sees no GPU there"
    if options.compiled and (missing := missing_compiler(options.device)):
        remedy = "load it in the profile's setup, or give compile: never in the sweep's resources"
        yield f"compiler: blocks are to be compiled, and the machine lacks {missing}: {remedy}"


def _without_corpus(runs_dir: Path, fingerprint: str) -> Iterator[str]:
    try:
        verify(open_corpus(runs_dir / "corpora", fingerprint))
    except (CorpusError, OSError) as error:
        yield f"corpus: {error}"


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
    """Print what is wrong with the plugins; 0 where nothing is."""
    problems = problems_here()
    for problem in problems:
        note(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
