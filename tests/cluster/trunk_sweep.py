"""Two token budgets that share a trunk: what every executor owes them."""

from pathlib import Path

import pytest

from scalevec.results.run_directory import RunDirectory, trial_ids
from support import finished

SWEEP = """\
name: trunks
corpus: {{source: text, files: ["{text}/*.txt"], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 256, learning_rate: 0.02, warmup_tokens: 512}}
ladder: [{{name: a, width: 16, layers: 1}}]
tokens_per_parameter: [10, 20]
schedules: [wsd]
arms:
  baseline: {{scale_vectors: baseline}}
  unified: {{scale_vectors: unified}}
seeds: [0]
"""

Outcomes = dict[str, tuple[float, float, int]]
"""Trial -> test loss, validation loss, how many of its steps were taken from a trunk."""


@pytest.fixture(scope="session")
def trunk_sweep(text_files) -> str:
    return SWEEP.format(text=text_files)


@pytest.fixture(scope="session")
def trunks_on_this_machine(tmp_path_factory, trunk_sweep) -> Outcomes:
    actual = outcomes(finished(tmp_path_factory.mktemp("trunks"), trunk_sweep))
    assert sorted(steps > 0 for _, _, steps in actual.values()) == [False, False, True, True]
    return actual


def outcomes(folder: Path) -> Outcomes:
    runs = folder / "runs"
    results = {name: RunDirectory.of(runs, name).result() for name in trial_ids(runs)}
    return {
        name: (result["loss"], result["loss_validation"], result["trunk_step"])
        for name, result in results.items()
        if result
    }


def states_left(folder: Path) -> list[Path]:
    return list((folder / "runs" / "trunks").rglob("*.safetensors"))
