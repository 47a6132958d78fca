"""A law of a plugin answers a sweep's question and stands on the command line; nothing of the plugin runs."""

import json
import sys

import pytest

from plugin_package import ARMS, write_plugin
from support import succeeded

SWEEP = """\
name: planted
plugins: [mylab.arms]
corpus: {source: python-stdlib, tokenizer: bytes, sequence_length: 32}
trial: {batch_tokens: 256}
ladder:
  - {name: a, width: 64, layers: 1}
  - {name: b, width: 128, layers: 1}
  - {name: c, width: 256, layers: 2}
  - {name: d, width: 512, layers: 2}
tokens_per_parameter: [8]
arms: {baseline: {scale_vectors: baseline}, unified: {scale_vectors: unified}}
seeds: [0, 1]
simulate: {arms: {unified: {gain: 1.5}}, pair_noise: 0.001, block_noise: 0}
compare: {law: floor-in-n, bootstrap: 20}
"""
RUNS = ("--runs", "runs/simulated")


@pytest.fixture
def planted(tmp_path, own_registries, command):
    """The folder in which the sweep has been simulated."""
    write_plugin(tmp_path, "raise SystemExit('it ran')\n" + ARMS)
    (tmp_path / "planted.yaml").write_text(SWEEP)
    succeeded(command("run", "planted.yaml", "--executor", "simulate"))
    return tmp_path


@pytest.mark.slow
def test_verdict_fit_and_report_rest_on_the_law_of_the_sweeps_plugin(planted, command):
    compared = succeeded(command("compare", "planted", "--json", *RUNS))
    assert json.loads(compared.stdout)[0]["verdict"] == "better"
    fitted = command("fit", "planted", "--law", "floor-in-n", "--bootstrap", 0, "--json", *RUNS)
    assert {fit["law"] for fit in json.loads(fitted.stdout)} == {"floor-in-n"}, fitted.stderr
    assert command("report", "planted", "-o", "page.html", *RUNS).returncode == 0
    assert "E + A/N^alpha" in (planted / "page.html").read_text()
    assert "mylab" not in sys.modules


def test_a_law_that_the_plugin_has_got_since_is_known_on_the_command_line(planted, command):
    write_plugin(planted, ARMS + 'plugins.law("later", "E + A/N^alpha", source="later")\n')
    fitted = command("fit", "planted", "--law", "later", "--bootstrap", 0, "--json", *RUNS)
    assert {fit["law"] for fit in json.loads(fitted.stdout)} == {"later"}, fitted.stderr
