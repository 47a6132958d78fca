"""A sweep whose trials are trained by several processes each, or that asks for what cannot be."""

import pytest

from recorded_sweep import directories_in
from support import assert_refused, succeeded

SWEEP = """\
name: many
corpus: {{source: text, files: ["{text}/*.txt"], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 128, learning_rate: 0.02}}
ladder:
  - {{name: a, width: 16, layers: 1}}
tokens_per_parameter: [0.5]
arms:
  baseline: {{scale_vectors: baseline}}
  none: {{scale_vectors: none}}
compare: {{reference: baseline}}
seeds: [0]
resources: {{default: {{{resources}}}}}
optimizers: [{optimizer}]
"""


@pytest.fixture
def run(scalevec, tmp_path, text_files):
    def run(resources: str, optimizer: str = "adamw"):
        text = SWEEP.format(text=text_files, resources=resources, optimizer=optimizer)
        (tmp_path / "many.yaml").write_text(text)
        return scalevec("run", "many.yaml")

    return run


@pytest.mark.slow
def test_trials_of_two_processes_are_run_one_after_the_other(run, tmp_path):
    succeeded(run("processes: 2, shard: true"))
    results = [directory.result() for directory in directories_in(tmp_path / "runs")]
    assert [result["world_size"] for result in results] == [2, 2]


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ("processes: 3", "a: processes is 3; allowed: a divisor of the 4 sequences of a batch"),
        ("shard: true", "a: shard is true for a trial of one process"),
        ("processes: 2, nodes: 2", "a: nodes is 2; executor local has this machine alone"),
        ("gpus: 2, processes: 2", "a: processes is 2 and gpus 2; allowed: one of them"),
    ],
)
def test_what_cannot_be_is_refused_with_one_message_before_any_training(resources, message, run, tmp_path):
    assert_refused(run(resources), 2, message)
    events = [event for directory in directories_in(tmp_path / "runs") for event in directory.events()]
    assert not any(event["state"] == "running" for event in events)


def test_an_optimizer_that_is_not_known_to_be_right_over_shares_is_refused(run):
    done = run("processes: 2, shard: true", "adafactor")
    assert_refused(done, 2, "a: optimizer is 'adafactor'; allowed: with shard: adamw, muon, sgd")
