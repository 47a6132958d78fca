"""A law of a plugin answers a sweep's question and stands on the command line; nothing of the plugin runs."""

import json
import sys

import pandas as pd
import pytest

from plugin_package import ARMS, write_plugin

SWEEP = """\
name: planted
plugins: [mylab.arms]
corpus: {source: synthetic, sequence_length: 32}
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
def folder(tmp_path, own_registries):
    write_plugin(tmp_path, "raise SystemExit('it ran')\n" + ARMS)
    return tmp_path


@pytest.fixture
def planted(folder, command):
    """The folder in which the sweep has been simulated."""
    (folder / "planted.yaml").write_text(SWEEP)
    done = command("run", "planted.yaml", "--executor", "simulate")
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def installed(folder, monkeypatch):
    """A table of two arms, in a process that has the plugin as an installed package."""
    metadata = folder / "mylab-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: mylab\nVersion: 1.0\n")
    points = "[scalevec.plugins]\nmy-arms = mylab.arms\nbroken = nowhere\n"
    (metadata / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(folder)
    sizes = [1e5, 2e5, 4e5, 8e5]
    rows = [
        {"arm": arm, "n_params": n, "n_tokens": 20 * n, "seed": seed, "loss": 2 + gain * 30 * n**-0.3 + noise}
        for arm, gain in (("baseline", 1.0), ("new", 0.9))
        for n in sizes
        for seed, noise in ((0, 1e-3), (1, -1e-3))
    ]
    pd.DataFrame(rows).to_csv(folder / "t.csv", index=False)


@pytest.mark.slow
def test_verdict_fit_and_report_rest_on_the_law_of_the_sweeps_plugin(planted, command):
    compared = command("compare", "planted", "--json", *RUNS)
    assert compared.code == 0, compared.err
    assert json.loads(compared.out)[0]["verdict"] == "better"
    fitted = command("fit", "planted", "--law", "floor-in-n", "--bootstrap", 0, "--json", *RUNS)
    assert {fit["law"] for fit in json.loads(fitted.out)} == {"floor-in-n"}, fitted.err
    assert command("report", "planted", "-o", "page.html", *RUNS).code == 0
    page = (planted / "page.html").read_text()
    assert "E + A/N^alpha" in page
    assert "mylab" not in sys.modules


def test_a_law_that_the_plugin_has_got_since_is_known_on_the_command_line(planted, command):
    write_plugin(planted, ARMS + 'plugins.law("later", "E + A/N^alpha", source="later")\n')
    fitted = command("fit", "planted", "--law", "later", "--bootstrap", 0, "--json", *RUNS)
    assert {fit["law"] for fit in json.loads(fitted.out)} == {"later"}, fitted.err


@pytest.mark.parametrize("verb", ["fit", "report"])
def test_the_law_of_an_installed_plugin_is_known_for_any_table(installed, command, verb):
    done = command(verb, "t.csv", "--law", "floor-in-n", "--bootstrap", 20, "--json")
    assert done.code == 0, done.err
    assert "warning: broken: no module of that name is installed" in done.err
    assert "mylab" not in sys.modules


def test_a_law_that_nobody_has_is_refused_with_those_that_there_are(installed, command):
    refused = command("fit", "t.csv", "--law", "floor-in-m")
    assert (refused.code, "law is 'floor-in-m'; nearest: 'floor-in-n'" in refused.err) == (2, True)
