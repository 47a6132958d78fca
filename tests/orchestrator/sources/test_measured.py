"""What was measured along runs, from the run directories to the command and the plan."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from recorded_sweep import complete, directory_of, member_of, record_sweep, trial_of
from scalevec.model.config import ModelConfig, RunOptions, Shape
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.identity import trial_id
from scalevec.model.strategies import PRESETS
from scalevec.model.theory.measure import vector_statistics
from scalevec.model.theory.preconditioner import Preconditioner
from scalevec.orchestrator.commands.analyse.theory import theory
from scalevec.orchestrator.costs import log_bytes
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.sources.measured import MOST_STATISTICS, measured, run_statistics
from scalevec.orchestrator.sources.sources import open_source
from scalevec.results.files import to_json


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two completed trials with measurements at two steps, and one that is pending."""
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "runs"
    record_sweep(folder, "small", [member_of("none", 0), member_of("unified", 0), member_of("baseline", 0)])
    for arm, level in (("none", 1.0), ("unified", 2.0)):
        directory = directory_of(folder, arm, 0)
        for step in (1, 2, 3):
            row = {"step": step, "tokens": 256 * step, "loss": 3.0, "sv/final/mean": 1.0}
            if step != 2:
                row |= {"theory/query/relative_error": [0.1 * level, None], "theory/sharpness": level * step}
            directory.append_metrics(row)
        complete(directory)
    directory_of(folder, "baseline", 0)
    return folder


def test_a_value_is_a_row_with_its_kind_quantity_and_layer(runs):
    table = measured(open_source("small", runs), runs)
    of = table[(table["arm"] == "unified") & (table["step"] == 3)]
    values = of[["kind", "quantity", "layer", "value", "tokens"]].to_numpy().tolist()
    assert values[0] == ["query", "relative_error", 0, 0.2, 768]
    assert np.isnan(values[1][3])
    assert values[2] == ["", "sharpness", 0, 6.0, 768]
    assert set(table["trial_id"]) == {trial_id(trial_of(arm, 0)) for arm in ("none", "unified")}


@pytest.mark.parametrize("n_rows", [MOST_STATISTICS, MOST_STATISTICS + 1, 7 * MOST_STATISTICS])
def test_a_long_run_has_some_of_its_statistics_from_the_first_to_the_last_evenly_spread(runs, n_rows):
    directory = directory_of(runs, "unified", 1)
    record_sweep(runs, "long", [member_of("unified", 1)])
    for step in range(n_rows):
        directory.append_metrics({"step": step, "tokens": step, "loss": 3.0, "sv/final/mean": 1.0})
    complete(directory)
    tokens = run_statistics(open_source("long", runs), runs)["tokens"].to_numpy()
    assert (len(tokens), tokens[0], tokens[-1]) == (MOST_STATISTICS, 0, n_rows - 1)
    apart = np.diff(tokens)
    assert apart.max() - apart.min() <= 1


def test_the_command_gives_a_row_for_each_arm(runs):
    result = theory("small", runs)
    rows = [(row["arm"], row["relative_error"], row["sharpness_last"]) for row in result.record]
    assert rows == [("none", 0.1, 3.0), ("unified", 0.2, 6.0)]
    assert "unified" in result.text


def test_a_sweep_without_measurements_says_how_to_get_them(runs, tmp_path):
    record_sweep(runs, "other", [member_of("baseline", 0)])
    message = r"no completed trial with measurements; give it a section such as measure"
    with pytest.raises(InvalidInputError, match=message):
        measured(open_source("other", runs), runs)


def test_a_table_has_no_measurements(runs, tmp_path):
    (tmp_path / "a.csv").write_text("n_params,n_tokens,loss\n1,2,3\n")
    with pytest.raises(InvalidInputError, match="is a table; measurements are read from the runs of a sweep"):
        measured(open_source(str(tmp_path / "a.csv"), runs), runs)


@pytest.mark.parametrize("arm", ["none", "baseline", "unified"])
def test_the_size_of_a_log_is_that_of_one_with_vectors_at_every_map(arm):
    """Six layers, so that lists by layer weigh; sixty steps, of which every tenth is measured."""
    config = ModelConfig(Shape(16, 6, 2, 2, 24), 64, PRESETS[arm])
    trial = replace(trial_of(arm, 0), model=config, tokens=60 * 256)
    options = RunOptions(metrics_steps=10, measure=("preconditioner",), measure_steps=10)
    model = Transformer(config)
    initialise(model, 0)
    tokens = torch.randint(64, (2, 9), generator=torch.Generator().manual_seed(0))
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    measure = Preconditioner(trial, model, optimizer)
    measure.before_step()
    optimizer.step()
    statistics, quantities = len(to_json(vector_statistics(model))), len(to_json(measure.after_step()))
    size = 60 * 160 + 6 * statistics + 7 * quantities
    assert size / 2 < log_bytes(trial, options) < 5 * size


def test_sharpness_adds_to_the_log():
    trial = trial_of("baseline", 0)
    with_it = log_bytes(trial, RunOptions(measure=("sharpness",), measure_steps=1))
    assert with_it > log_bytes(trial, RunOptions()) + 100 * trial.steps
