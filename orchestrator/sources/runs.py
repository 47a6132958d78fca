"""A runs directory as Python objects: its sweeps, their results, its trials and the models they trained.

A model is read with the plugin that computes its scale vectors.
"""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from scalevec.model.config import Trial
from scalevec.model.data.corpus import Corpus, open_corpus
from scalevec.model.fields import PluginSource
from scalevec.model.identity import trial_from_fields
from scalevec.model.train import newest_first
from scalevec.orchestrator.errors import InvalidInputError, read_or_warn
from scalevec.orchestrator.private import private_folder
from scalevec.orchestrator.snapshots.snapshot import SNAPSHOTS
from scalevec.orchestrator.sources.sources import open_sweep, recorded_states, sweep_folder
from scalevec.orchestrator.trust import Trust, require_trust
from scalevec.orchestrator.worker.preflight import require_importable
from scalevec.results.files import names_in
from scalevec.results.run_directory import RunDirectory, is_trial_id
from scalevec.results.sweep_folder import SweepFolder, sweep_names
from scalevec.sweeps.plugins.locate import FOLDER, Plugin, PluginError, find
from scalevec.sweeps.plugins.registered import register
from scalevec.sweeps.trainers.any_trial import is_foreign

if TYPE_CHECKING:
    import pandas as pd

    from scalevec.model.data.tokenize import TextTokenizer
    from scalevec.model.decoder import Transformer

SHORTEST_PREFIX = 4


def only_match(prefix: str, names: Iterable[str], what: str, digits_of: str) -> str:
    """Return the one of ``names`` that starts with ``prefix``.

    ``what`` and ``digits_of`` say in the message of ``InvalidInputError`` what they are names of.
    """
    matching = [name for name in names if name.startswith(prefix)] if len(prefix) >= SHORTEST_PREFIX else []
    if len(matching) != 1:
        raise InvalidInputError(
            f"{len(matching) or 'no'} {what} match prefix {prefix!r}; give at least {SHORTEST_PREFIX} "
            f"hexadecimal digits of the {digits_of}, enough to be unique"
        )
    return matching[0]


class TrainedTrial(RunDirectory):
    """The run directory of a trial, and what it trained: its model and tokenizer."""

    @cached_property
    def specification(self) -> Trial:
        """What was trained."""
        return trial_from_fields(self.trial()["semantic"])

    def model(self, *, trust: bool = False) -> "Transformer":
        """Return the trained decoder, on the CPU; it maps tokens [batch, length] to logits.

        Args:
            trust: run the plugin that computes its scale vectors, if one does, without asking.

        Raises:
            InvalidInputError: the trial is not completed, its weights were not kept, or a plugin that it
                needs is not there as it was or not trusted.
        """
        import torch

        from scalevec.model.decoder import Transformer, initialise
        from scalevec.model.train.checkpoint import DAMAGE, pack, read_checkpoint

        self._require_completed()
        if is_foreign(self.trial()["semantic"]):
            raise InvalidInputError(
                f"trial {self.trial_id[:12]}: a trainer of its sweep trained it, whose models only that "
                f"code knows; what it wrote is below {self.path}"
            )
        paths = newest_first(self.checkpoints_path)
        if not paths:
            raise InvalidInputError(
                f"trial {self.trial_id[:12]}: its weights were not kept; to have them, write keep: weights "
                f"in {self._sweep_folder.sweep_path}, then: rm -r {shlex.quote(str(self.path))} && "
                f"{self._line('run', self._sweep)}"
            )
        if plugin := self.specification.model.scale_vectors.plugin:
            load_plugin(plugin, self._sweep_folder, Trust(trust))
        model = Transformer(self.specification.model)
        initialise(model, 0)
        try:
            kept = read_checkpoint(paths[0]).tensors
            with torch.no_grad():
                for name, tensor in pack(model, None).items():
                    tensor.copy_(kept[name])
        except FileNotFoundError:  # it was removed meanwhile
            raise
        except DAMAGE as problem:
            raise InvalidInputError(
                f"{paths[0]} is damaged ({problem}); to train the model again: rm -r "
                f"{shlex.quote(str(self.path))} && {self._line('run', self._sweep)}"
            ) from None
        return model.eval()

    def corpus(self) -> Corpus:
        """Return the prepared corpus. Raises ``CorpusError`` where it was removed."""
        return open_corpus(self.path.parents[2] / "corpora", self.specification.corpus)

    def tokenizer(self) -> "TextTokenizer":
        """Return the tokenizer of the trial's corpus: ``encode`` and ``decode``. Raises ``CorpusError``."""
        from scalevec.model.data.tokenize import TextTokenizer

        return TextTokenizer(self.corpus())

    def _require_completed(self) -> None:
        result = self.result()
        status = result["status"] if result else self.state().state
        if status == "completed":
            return
        line = f"to have one: {self._line('retry' if status == 'failed' else 'run', self._sweep)}"
        if status == "diverged":
            line = f"to see where: {self._line('explain', self.trial_id[:12])}"
        raise InvalidInputError(
            f"trial {self.trial_id[:12]}: is {status}; only a completed trial has a model; {line}"
        )

    @property
    def _sweep(self) -> str:
        """The sweep that the trial first ran for."""
        return str(self.trial()["descriptive"].get("first_sweep", "SWEEP"))

    @property
    def _sweep_folder(self) -> SweepFolder:
        return SweepFolder.of(self.path.parents[2], self._sweep)

    def _line(self, verb: str, name: str) -> str:
        return shlex.join(["scalevec", verb, name, "--runs", str(self.path.parents[2])])


_copies: dict[str, tuple[str, TemporaryDirectory[str]]] = {}
"""What this process has loaded: the digest, and the copy that it was imported from, by top-level module."""


def load_plugin(needed: PluginSource, folder: SweepFolder, trust: Trust) -> None:
    """Import the plugin with the source that trained for the sweep in ``folder``, once a person agrees.

    Raises:
        InvalidInputError: that source is nowhere, nobody agreed, it cannot be imported, or this process has
            loaded it with another source.
    """
    plugin = _as_it_trained(needed, folder)
    require_trust(str(folder.sweep_path), plugin.files, trust, [plugin.parent])
    try:
        register(plugin)
        require_importable(plugin, _copied(plugin))
    except PluginError as problem:
        raise InvalidInputError(str(problem)) from None


def _as_it_trained(needed: PluginSource, folder: SweepFolder) -> Plugin:
    _, is_version, number = needed.source.partition("code_version ")
    code_version, shown = (int(number), needed.source) if is_version else (None, needed.source[:12])
    other = []
    for parent in _parents(folder):
        try:
            plugin = find(needed.module, parent, code_version)
        except (PluginError, OSError):
            continue
        if plugin.identity == needed:
            return plugin
        other.append(f"{plugin.parent} ({plugin.digest[:12]})")
    raise InvalidInputError(
        f"the model computes with the plugin {needed.module} as it was with the source {shown}, which "
        f"is not there any more; other content is in: {', '.join(dict.fromkeys(other)) or 'none'}. "
        "Put that version back beside the sweep file"
    )


def _parents(folder: SweepFolder) -> Iterator[Path]:
    """The sweep file's folder and what is installed, then what was sent with trials."""
    origin = read_or_warn(folder.origin, None, "the plugin is looked for where trials were sent with it")
    yield origin or folder.path
    sent = private_folder() / SNAPSHOTS
    yield from (sent / name / FOLDER for name in names_in(sent) if (sent / name).is_dir())


def _copied(plugin: Plugin) -> Path:
    """A folder with exactly the files that were agreed to, which Python looks into first."""
    top = plugin.module.partition(".")[0]
    if top not in _copies:
        copy = TemporaryDirectory(prefix="scalevec-plugin-")
        for name, content in plugin.files.items():
            path = Path(copy.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        sys.path.insert(0, copy.name)
        _copies[top] = plugin.digest, copy
    digest, copy = _copies[top]
    if digest != plugin.digest:
        raise PluginError(f"{plugin.module}: this process has loaded another version of it; start a new one")
    return Path(copy.name).resolve()


@dataclass(frozen=True)
class SweepOfRuns:
    """One sweep of a runs directory; ``scalevec.open("runs").sweep("quickstart")`` returns one."""

    name: str
    runs_dir: Path

    def results(self) -> "pd.DataFrame":
        """Return the tidy results, as :meth:`Runs.results` does."""
        return open_sweep(self.name, self.runs_dir).rows

    def trials(self) -> list[TrainedTrial]:
        """Return the trials that have begun: their fields, metrics, results and kept models."""
        return [TrainedTrial(trial.path) for trial, _ in recorded_states(self.name, self.runs_dir)]

    def trial(self, prefix: str) -> TrainedTrial:
        """Return one trial, as :meth:`Runs.trial` does."""
        return Runs(self.runs_dir).trial(prefix)

    def curves(self) -> "pd.DataFrame":
        """Return the training loss (nats/token) of the comparison trials, one row per logged step.

        Columns: trial_id, arm, rung, seed, tokens, loss.
        """
        from scalevec.orchestrator.sources.measured import training_curves

        return training_curves(open_sweep(self.name, self.runs_dir), self.runs_dir)


class Runs:
    """What a runs directory holds; ``scalevec.open("runs")`` returns one.

    Reading it is safe while trials are running, and from several processes at once.

    Args:
        path: the directory given to ``scalevec run`` as ``--runs``.

    Raises:
        InvalidInputError: ``path`` is no directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise InvalidInputError(f"{self.path}: no such directory; `scalevec run SWEEP` makes one")

    def __repr__(self) -> str:
        return f"Runs({str(self.path)!r})"

    def sweeps(self) -> list[str]:
        """Return the names of the sweeps, sorted."""
        return sweep_names(self.path)

    def results(self, sweep: str) -> "pd.DataFrame":
        """Return the tidy results of a sweep: one row per trial, whatever its state.

        ``loss`` is in nats/token on the test split and missing until the trial has completed. The frame can
        be given to :func:`scalevec.fit`, :func:`scalevec.compare` and the rest of the analysis as it is.

        Args:
            sweep: a name out of :meth:`sweeps`, or the path of its sweep file.

        Raises:
            InvalidInputError: no such sweep has been run here.
        """
        return open_sweep(sweep, self.path).rows

    def sweep(self, name: str) -> SweepOfRuns:
        """Return one sweep, which may still be running.

        Raises:
            InvalidInputError: there is no sweep of that name here.
        """
        return SweepOfRuns(sweep_folder(name, self.path).name, self.path)

    def trial(self, prefix: str) -> TrainedTrial:
        """Return one trial: its fields, events, metrics, result and, where weights were kept, its model.

        Args:
            prefix: the first hexadecimal digits of its id: at least four, enough to be unique.

        Raises:
            InvalidInputError: no trial, or more than one, has such an id.
        """
        folder = self.path / "trials" / prefix[:2]
        names = [name for name in names_in(folder) if is_trial_id(name)]
        return TrainedTrial.of(self.path, only_match(prefix, names, f"trials in {self.path}", "id"))
