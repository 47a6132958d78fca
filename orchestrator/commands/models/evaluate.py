"""``scalevec evaluate``: the loss of a trained model on text of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from scalevec.orchestrator.cli.options import RUNS, Runs, TrialName, Trusted
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.runs import Runs as RunsFolder

BATCH_TOKENS = 4096


def evaluate(
    trial: TrialName,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Text files; each is a document.")],
    runs_dir: Runs = RUNS,
    trust: Trusted = False,
) -> Result:
    """Measure the loss of the model of a trial on text files.

    A text is cut into sequences of the length that the model was trained on.
    """
    import math

    import numpy as np

    from scalevec.model.train.evaluation import evaluate as losses_of

    directory = RunsFolder(runs_dir).trial(trial)
    model, tokenizer = directory.model(trust=trust), directory.tokenizer()
    texts = [_text(path) for path in files]
    ids = [number for text in texts for number in (*tokenizer.encode(text), tokenizer.separator)]
    if len(ids) < 2:
        raise InvalidInputError(f"{', '.join(map(str, files))}: has no token to predict; more text is needed")
    length = directory.specification.sequence_length
    result = losses_of(model, np.asarray(ids, np.uint32), length, max(1, BATCH_TOKENS // length), note)
    n_tokens, n_bytes = len(ids) - 1, sum(len(text.encode()) for text in texts)
    bits = result.loss * n_tokens / n_bytes / math.log(2)
    record = {"trial_id": directory.trial_id, "loss": result.loss, "tokens": n_tokens, "bytes": n_bytes}
    text = f"{result.loss:.4f} nats/token over {n_tokens:,} tokens, {bits:.4f} bits per byte"
    return Result({**record, "bits_per_byte": bits}, text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: cannot be read as UTF-8 text: {error}") from error
