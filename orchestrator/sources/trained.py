"""A trial with the model that it trained."""

import shlex
from functools import cached_property
from typing import TYPE_CHECKING

from scalevec.orchestrator.errors import InvalidInputError
from scalevec.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from scalevec.model.config import Trial
    from scalevec.model.training.corpora.prepared import Corpus
    from scalevec.model.training.corpora.tokenizers import TextTokenizer
    from scalevec.model.transformer import Transformer


class TrainedTrial(RunDirectory):
    """The run directory of a trial, and what it trained: its model and tokenizer."""

    @cached_property
    def specification(self) -> "Trial":
        """What was trained."""
        from scalevec.model.identity import trial_from_fields

        return trial_from_fields(self.trial()["semantic"])

    def model(self) -> "Transformer":
        """Return the trained decoder, on the CPU; it maps tokens [batch, length] to logits.

        Raises:
            InvalidInputError: the trial is not completed, or its weights were not kept.
        """
        import torch

        from scalevec.model.training.checkpoints.folder import newest_first
        from scalevec.model.training.checkpoints.joint_state import whole
        from scalevec.model.training.checkpoints.state import pack, read_checkpoint
        from scalevec.model.transformer import Transformer, initialise

        self._require_completed()
        paths = newest_first(self.checkpoints_path)
        if not paths:
            raise InvalidInputError(
                f"trial {self.trial_id[:12]}: its weights were not kept; to have them, write keep: weights "
                f"in the sweep file, then: rm -r {shlex.quote(str(self.path))} && {self._line('run')}"
            )
        model = Transformer(self.specification.model)
        initialise(model, 0)
        kept = read_checkpoint(paths[0]).tensors
        with torch.no_grad():
            for name, tensor in pack(model, None).items():
                tensor.copy_(whole(kept[name]))
        return model.eval()

    def corpus(self) -> "Corpus":
        """Return the prepared corpus. Raises ``CorpusError`` where it was removed."""
        from scalevec.model.training.corpora.prepare import open_corpus

        return open_corpus(self.path.parents[2] / "corpora", self.specification.corpus)

    def tokenizer(self) -> "TextTokenizer":
        """Return the tokenizer of the trial's corpus: ``encode`` and ``decode``. Raises ``CorpusError``."""
        from scalevec.model.training.corpora.tokenizers import TextTokenizer

        return TextTokenizer(self.corpus())

    def _require_completed(self) -> None:
        result = self.result()
        status = result["status"] if result else self.state().state
        lines = {
            "diverged": f"to see where: {self._line('explain')}",
            "failed": f"{self._line('retry')}, then run",
        }
        if status != "completed":
            how = lines.get(status, f"to have one: {self._line('run')}")
            raise InvalidInputError(
                f"trial {self.trial_id[:12]}: is {status}; only a completed trial has a model; {how}"
            )

    def _line(self, verb: str) -> str:
        """The command ``verb`` of the trial, or of the sweep that it first ran for."""
        sweep = self.trial()["descriptive"].get("first_sweep", "SWEEP")
        name = self.trial_id[:12] if verb == "explain" else sweep
        return shlex.join(["scalevec", verb, name, "--runs", str(self.path.parents[2])])
