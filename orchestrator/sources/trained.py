"""A trial with the model that it trained."""

import shlex
from functools import cached_property
from typing import TYPE_CHECKING

from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.trust import Trust
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder
from scalevec.sweeps.trainers.foreign_trial import is_foreign

if TYPE_CHECKING:
    from scalevec.model.config import Trial
    from scalevec.model.data.corpus import Corpus
    from scalevec.model.data.tokenize import TextTokenizer
    from scalevec.model.decoder import Transformer


class TrainedTrial(RunDirectory):
    """The run directory of a trial, and what it trained: its model and tokenizer."""

    @cached_property
    def specification(self) -> "Trial":
        """What was trained."""
        from scalevec.model.identity import trial_from_fields

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
        from scalevec.model.train import newest_first
        from scalevec.model.train.checkpoint import DAMAGE, pack, read_checkpoint
        from scalevec.orchestrator.sources.plugin_of_model import load_plugin

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

    def corpus(self) -> "Corpus":
        """Return the prepared corpus. Raises ``CorpusError`` where it was removed."""
        from scalevec.model.data.corpus import open_corpus

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
