"""``scalevec export``: the model of a trial in a format of others."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalevec.model.data import CorpusError
from scalevec.model.data.system import complete_directory
from scalevec.orchestrator.cli.options import RUNS, Runs, TrialName, Trusted
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.runs import Runs as RunsFolder
from scalevec.orchestrator.sources.runs import TrainedTrial

if TYPE_CHECKING:
    from scalevec.model.decoder import Transformer

SHOWN = ("loss", "loss_validation", "n_params", "n_tokens", "tokens_per_s", "device", "precision")


def export(
    trial: TrialName,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="A new folder.")],
    runs_dir: Runs = RUNS,
    trust: Trusted = False,
) -> Result:
    """Write a trained model: weights, configuration, tokenizer, a card.

    It loads in the transformers library without scalevec: as a plain Llama where every scale
    vector folds into a matrix, as a plain Gemma 3 where its norms alone are left, else with the code that is
    written beside it (trust_remote_code=True).
    """
    directory = RunsFolder(runs_dir).trial(trial)
    if output.exists():
        raise InvalidInputError(f"{output}: is there already; name a new folder")
    model = directory.model(trust=trust)
    try:
        with complete_directory(output, exclusive=True) as partial:
            facts = _write(directory, model, partial)
            (partial / "README.md").write_text(_card(directory, facts), encoding="utf-8")
    except FileExistsError:
        raise InvalidInputError(f"{output}: another process has just made it; nothing was written") from None
    record = {"trial_id": directory.trial_id, "folder": str(output), **facts}
    why = f"; no plain Llama or Gemma 3: {facts['why_code']}" if facts["why_code"] else ""
    return Result(record, f"{output}: {facts['class']}, {facts['loading']}{why}")


def _write(directory: TrainedTrial, model: "Transformer", folder: Path) -> dict[str, Any]:
    from scalevec.model.export.hugging_face import ExportError, exported, write_hugging_face

    try:
        decoder = exported(model, directory.specification.sequence_length)
    except ExportError as error:
        raise InvalidInputError(f"trial {directory.trial_id[:12]}: {error}") from error
    separator = _write_tokenizer(directory, folder)
    write_hugging_face(
        folder, decoder, {"eos_token_id": separator, "bos_token_id": None, "pad_token_id": None}
    )
    trust = ", trust_remote_code=True" if decoder.why_code else ""
    return {
        "class": decoder.config["architectures"][0],
        "loading": f"AutoModelForCausalLM.from_pretrained(FOLDER{trust})",
        "why_code": decoder.why_code,
    }


def _write_tokenizer(directory: TrainedTrial, folder: Path) -> int | None:
    """Return the id of the token that ends a document; None without a tokenizer, which is said."""
    try:
        tokenizer = directory.tokenizer()
    except CorpusError as problem:
        note(f"no tokenizer: {problem}")
        return None
    serialized = tokenizer.serialized()
    (folder / "tokenizer.json").write_text(serialized["json"], encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": serialized["separator"],
        "model_max_length": directory.specification.sequence_length,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    return tokenizer.separator


def _card(directory: TrainedTrial, facts: dict[str, Any]) -> str:
    """Return README.md: what was trained, and its numbers."""
    specification, result = directory.specification, directory.result() or {}
    shape, rate = specification.model.shape, specification.optimizer.learning_rate
    lines = [
        f"# {directory.trial_id[:12]}",
        "",
        f"A decoder of {shape.layers} layers and width {shape.width}, trained by scalevec.",
        f"To load it: `{facts['loading']}`"
        + (f", which runs code of this folder ({facts['why_code']})." if facts["why_code"] else "."),
        "",
        "| | |",
        "|---|---|",
        f"| trial | `{directory.trial_id}` |",
        *(f"| {name} | {_shown(result[name])} |" for name in SHOWN if result.get(name) is not None),
        f"| optimizer | {specification.optimizer.name}, learning rate {rate:g} |",
        f"| schedule | {specification.schedule.name} |",
        f"| corpus | `{specification.corpus}` |",
        "",
        "Losses are in nats per token, on text that was not trained on.",
    ]
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    return (
        f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    )
