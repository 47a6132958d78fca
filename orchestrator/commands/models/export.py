"""``scalevec export``: the model of a trial in a format of others."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from scalevec.orchestrator.cli.options import RUNS, Runs, TrialName, Trusted
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.progress import note

if TYPE_CHECKING:
    from scalevec.model.decoder import Transformer
    from scalevec.orchestrator.sources.runs import TrainedTrial

SHOWN = ("loss", "loss_validation", "n_params", "n_tokens", "tokens_per_s", "device", "precision")


def export(
    trial: TrialName,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="A new folder.")],
    runs_dir: Runs = RUNS,
    trust: Trusted = False,
    form: Annotated[
        Literal["hf", "safetensors"],
        typer.Option("--format", help="hf: for the transformers library; safetensors: as it was trained."),
    ] = "hf",
) -> Result:
    """Write a trained model: weights, configuration, tokenizer, a card.

    With --format hf it loads in the transformers library without scalevec: as a plain Llama where every scale
    vector folds into a matrix, as a plain Gemma 3 where its norms alone are left, else with the code that is
    written beside it (trust_remote_code=True).
    """
    from scalevec.model.data.system import complete_directory
    from scalevec.orchestrator.sources.runs import Runs as RunsFolder

    directory = RunsFolder(runs_dir).trial(trial)
    if output.exists():
        raise InvalidInputError(f"{output}: is there already; name a new folder")
    model = directory.model(trust=trust)
    write = _write_hugging_face if form == "hf" else _write_plain
    try:
        with complete_directory(output, exclusive=True) as partial:
            facts = write(directory, model, partial)
            (partial / "README.md").write_text(_card(directory, facts), encoding="utf-8")
    except FileExistsError:
        raise InvalidInputError(f"{output}: another process has just made it; nothing was written") from None
    record = {"trial_id": directory.trial_id, "folder": str(output), **facts}
    why = f"; no plain Llama or Gemma 3: {facts['why_code']}" if facts["why_code"] else ""
    return Result(record, f"{output}: {facts['class']}, {_loading(facts)}{why}")


def _write_hugging_face(directory: "TrainedTrial", model: "Transformer", folder: Path) -> dict[str, Any]:
    from scalevec.model.export.hugging_face import ExportError, exported, write_hugging_face

    try:
        decoder = exported(model, directory.specification.sequence_length)
    except ExportError as error:
        raise InvalidInputError(f"trial {directory.trial_id[:12]}: {error}") from error
    separator = _write_tokenizer(directory, folder)
    write_hugging_face(
        folder, decoder, {"eos_token_id": separator, "bos_token_id": None, "pad_token_id": None}
    )
    return {"format": "hf", "class": decoder.config["architectures"][0], "why_code": decoder.why_code}


def _write_plain(directory: "TrainedTrial", model: "Transformer", folder: Path) -> dict[str, Any]:
    from scalevec.model.fields import to_dict
    from scalevec.model.train.checkpoint import pack, save_tensors

    tensors = {name.removeprefix("model."): tensor for name, tensor in pack(model, None).items()}
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_tensors(folder / "model.safetensors", contiguous)
    trial = to_dict(directory.specification)
    (folder / "trial.json").write_text(json.dumps(trial, indent=2) + "\n")
    _write_tokenizer(directory, folder)
    return {"format": "safetensors", "class": "scalevec.model.decoder.Transformer", "why_code": ""}


def _write_tokenizer(directory: "TrainedTrial", folder: Path) -> int | None:
    """Return the id of the token that ends a document; None without a tokenizer, which is said."""
    from scalevec.model.data import CorpusError

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


def _loading(facts: dict[str, Any]) -> str:
    if facts["format"] == "safetensors":
        return "names of tensors as in training"
    trust = ", trust_remote_code=True" if facts["why_code"] else ""
    return f"AutoModelForCausalLM.from_pretrained(FOLDER{trust})"


def _card(directory: "TrainedTrial", facts: dict[str, Any]) -> str:
    """Return README.md: what was trained, its numbers, the verdicts of the sweeps that have the trial."""
    specification, result = directory.specification, directory.result() or {}
    shape, rate = specification.model.shape, specification.optimizer.learning_rate
    lines = [
        f"# {directory.trial_id[:12]}",
        "",
        f"A decoder of {shape.layers} layers and width {shape.width}, trained by scalevec.",
        f"To load it: `{_loading(facts)}`"
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
        "",
        *_verdicts(directory),
    ]
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    return (
        f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    )


def _verdicts(directory: "TrainedTrial") -> list[str]:
    """Return a line for the newest verdict on each arm of a sweep that has the trial."""
    from scalevec.orchestrator.errors import read_or_warn
    from scalevec.orchestrator.sources.sources import members_or_none
    from scalevec.results.sweep_folder import SweepFolder, sweep_names

    runs_dir = directory.path.parents[2]
    lines = []
    for folder in (SweepFolder.of(runs_dir, name) for name in sweep_names(runs_dir)):
        members = members_or_none(folder)
        if all(member["trial_id"] != directory.trial_id for member in members):
            continue
        given: list[dict[str, Any]] = read_or_warn(folder.verdicts, [], "verdicts are left out of the card")
        newest = {(verdict["arm"], verdict["reference"]): verdict for verdict in given}
        lines += [f"- {folder.name}: {_sentence(verdict)}" for verdict in newest.values()]
    return ["Verdicts of its sweeps:", "", *lines] if lines else []


def _sentence(verdict: Mapping[str, Any]) -> str:
    from scalevec.analysis.formatting import percent, signed, span

    difference = verdict.get("loss_difference") or {}
    mean, interval = difference.get("mean"), difference.get("interval")
    words = f"{verdict['arm']} against {verdict['reference']}: {verdict['verdict']}"
    if mean is None or not interval:
        return words
    return f"{words}, {signed(mean)} nats/token ({percent(verdict['level'])} interval {span(interval)})"
