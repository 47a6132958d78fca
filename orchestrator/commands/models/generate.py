"""``scalevec generate``: what a trained model writes."""

from typing import Annotated

import typer

from scalevec.orchestrator.cli.options import RUNS, Runs, TrialName, Trusted
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.errors import InvalidInputError


def generate(
    trial: TrialName,
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="Text to continue.")],
    runs_dir: Runs = RUNS,
    trust: Trusted = False,
    tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens to write.")] = 100,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Sampling temperature; 0: always the likeliest token.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(metavar="SEED", help="Seed of the sampling.")] = 0,
) -> Result:
    """Continue a text with a trained model."""
    from scalevec.model.decoder import continued
    from scalevec.orchestrator.sources.runs import Runs as RunsFolder

    directory = RunsFolder(runs_dir).trial(trial)
    model, tokenizer = directory.model(trust=trust), directory.tokenizer()
    ids = tokenizer.encode(prompt)
    if not ids:
        raise InvalidInputError("--prompt is empty; one character or more is needed")
    length = directory.specification.sequence_length
    text = tokenizer.decode(list(continued(model, ids, tokens, length, temperature, seed)))
    record = {"trial_id": directory.trial_id, "prompt": prompt, "text": text, "seed": seed}
    return Result(record, prompt + text)
