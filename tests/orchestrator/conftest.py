"""A sweep of some seconds on real text."""

from pathlib import Path

import pytest

from another_user import as_nobody  # noqa: F401 (fixture)
from support import filled_once, finished

SWEEP = """\
name: small
corpus: {{source: text, files: ["{text}/*.txt"], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 256}}
ladder:
  - {{name: a, width: 16, layers: 1}}
  - {{name: b, width: 32, layers: 1}}
tokens_per_parameter: [4]
arms:
  baseline: {{scale_vectors: baseline}}
  none: {{scale_vectors: none}}
tune: {{learning_rate: [0.01, 0.02, 0.04], rungs: [a], seeds: [100], extend: 1}}
seeds: [0, 1]
compare: {{reference: baseline, margin: 0.005}}
"""


@pytest.fixture(scope="session")
def sweep_text(text_files) -> str:
    return SWEEP.format(text=text_files)


@pytest.fixture
def sweep_file(tmp_path, sweep_text) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(sweep_text)
    return path


@pytest.fixture(scope="session")
def finished_sweep(tmp_path_factory, sweep_text) -> Path:
    """A folder with small.yaml and its runs, trained to the end. Not to be changed: copy it."""
    return filled_once(tmp_path_factory, "finished", lambda folder: finished(folder, sweep_text))
