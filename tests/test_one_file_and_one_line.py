"""A new optimizer, schedule, strategy or executor is one file and one line, from sweep file to report."""

import csv
import io
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from plugin_copy import add_line, copied_packages
from support import assert_refused, succeeded


@dataclass(frozen=True)
class Addition:
    """What a person adds: the line, below which other line of which registry, and the file."""

    registry: str
    after: str
    line: str
    file: str = ""
    code: str = ""
    sweep: dict = field(default_factory=dict)
    """The sections of the sweep file that ask for it."""


OPTIMIZER = Addition(
    registry="model/optimization.py",
    after="OPTIMIZERS: dict",
    line='    "sign": RegisteredOptimizer("scalevec.model.train.sign:sign", '
    '{"gamma": OptionSpec(0.9, "Decay of the average.", BELOW_ONE)}),',
    file="model/train/sign.py",
    code="""
import torch

class Sign(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                average = self.state[parameter].setdefault("average", torch.zeros_like(parameter))
                average.lerp_(parameter.grad, 1 - group["gamma"])
                parameter.sub_(average.sign(), alpha=group["lr"])

def sign(groups, config):
    return Sign(groups, {"lr": config.learning_rate, "gamma": config.number("gamma")})
""",
    sweep={"optimizers": [{"name": "sign", "gamma": 0.8}]},
)
SCHEDULE = Addition(
    registry="model/optimization.py",
    after="SCHEDULES: dict",
    line='    "power": RegisteredSchedule("scalevec.model.power:power", '
    '{"exponent": OptionSpec(2.0, "Of the share that is left.", POSITIVE)}),',
    file="model/power.py",
    code="""
def power(trial, tokens):
    return (1 - tokens / trial.tokens) ** trial.schedule.number("exponent")
""",
    sweep={"schedules": [{"name": "power", "exponent": 3.0}]},
)
STRATEGY = Addition(
    registry="model/strategies.py",
    after="PRESETS: dict",
    line='    "split": ScaleVectorStrategy(branches="heterogeneous", reparameterization="er"),',
    sweep={"arms": {"baseline": {"scale_vectors": "baseline"}, "other": {"scale_vectors": "split"}}},
)
ATTENTION = Addition(
    registry="model/config.py",
    after="ATTENTIONS = {",
    line='    "window-8": "scalevec.model.window:Window",',
    file="model/window.py",
    code="""
import torch
from torch.nn.functional import scaled_dot_product_attention

from scalevec.model.attention import Attention

class Window(Attention):
    def mix(self, query, key, value):
        positions = torch.arange(query.shape[-2], device=query.device)
        distance = positions[:, None] - positions
        mask = (distance >= 0) & (distance < 8)
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
""",
    sweep={
        "arms": {
            "baseline": {"scale_vectors": "baseline"},
            "other": {"scale_vectors": "split"},
            "window": {"attention": "window-8"},
        }
    },
)
EXECUTOR = Addition(
    registry="orchestrator/executors/registry.py",
    after="EXECUTORS: dict",
    line='    "polite": RegisteredExecutor("scalevec.orchestrator.executors.polite:Polite", "here, gently"),',
    file="orchestrator/executors/polite.py",
    code="""
from scalevec.orchestrator.executors.local.local_executor import LocalExecutor

class Polite(LocalExecutor):
    name = "polite"
""",
)
ADDITIONS = (OPTIMIZER, SCHEDULE, STRATEGY, ATTENTION, EXECUTOR)

SWEEP = {
    "name": "added",
    "trial": {"batch_tokens": 256, "learning_rate": 0.01},
    "ladder": [{"name": "a", "width": 16, "layers": 1}],
    "tokens_per_parameter": [2],
    "seeds": [0, 1],
    "keep": "weights",
    "compare": {"reference": "baseline"},
}


@dataclass(frozen=True)
class Added:
    """The folder in which the copy and a sweep with every addition lie, and how to call it."""

    folder: Path
    environment: dict[str, str]

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "scalevec.orchestrator.cli.main", *arguments]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def scalevec(self, *arguments: str) -> str:
        """Run the command; returns its output."""
        done = succeeded(self.call(*arguments))
        return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory, text_files) -> Added:
    """One copy with all additions: each is its own file and line, whichever others are there."""
    folder = tmp_path_factory.mktemp("copy")
    environment = copied_packages(folder)
    corpus = {"source": "text", "files": [f"{text_files}/*.txt"], "tokenizer": "bytes", "sequence_length": 32}
    sweep = SWEEP | {"corpus": corpus}
    for addition in ADDITIONS:
        add_line(folder / addition.registry, addition.after, addition.line)
        if addition.file:
            (folder / addition.file).write_text(addition.code)
        sweep |= addition.sweep
    (folder / "added.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False))
    return Added(folder, environment)


@pytest.mark.slow
def test_an_optimizer_a_schedule_a_strategy_an_attention_and_an_executor_are_trained_and_reported(copy):
    copy.scalevec("run", "added.yaml", "--jobs", "1", "--executor", "polite")
    results = [json.loads(path.read_text()) for path in copy.folder.glob("runs/trials/*/*/result.json")]
    assert [result["status"] for result in results] == ["completed"] * 6
    kept = copy.folder.glob("runs/trials/*/*/jobs.jsonl")
    jobs = [json.loads(path.read_text().splitlines()[0]) for path in kept]
    assert {job["executor"] for job in jobs} == {"polite"}
    table = list(csv.DictReader(io.StringIO(copy.scalevec("results", "added"))))
    settings = {(row["optimizer"], row["schedule"]) for row in table}
    assert settings == {("sign(gamma=0.8)", "power(exponent=3.0)")}
    assert {row["vector_reparameterization"] for row in table} == {"none", "er"}
    window = next(row for row in table if row["arm"] == "window")
    assert {row["loss"] for row in table if row["arm"] == "baseline"}.isdisjoint({window["loss"]})
    assert_refused(copy.call("export", window["trial_id"], "-o", "exported"), 2, "window-8")
    copy.scalevec("report", "added", "-o", "report.html")
    assert "baseline" in (copy.folder / "report.html").read_text(encoding="utf-8")


def test_the_schema_of_the_sweep_file_has_each_addition(copy):
    definitions = json.loads(copy.scalevec("schema"))["$defs"]
    assert "sign" in definitions["TrialFields"]["properties"]["optimizer"]["enum"]
    assert "gamma" in definitions["OptimizerFields"]["properties"]
    assert "exponent" in definitions["ScheduleFields"]["properties"]
    assert "split" in definitions["StrategyFields"]["properties"]["preset"]["enum"]


def test_an_option_of_an_addition_is_checked_where_it_stands(copy):
    text = (copy.folder / "added.yaml").read_text()
    (copy.folder / "wrong.yaml").write_text(text.replace("gamma: 0.8", "gamma: 1.5"))
    done = copy.call("plan", "wrong.yaml")
    assert_refused(done, 2, "optimizers[0].gamma: 1.5; allowed: a number in [0, 1)")


def test_the_plan_estimates_the_memory_of_an_addition(copy):
    rows = json.loads(copy.scalevec("plan", "added.yaml", "--json"))
    rows = rows if isinstance(rows, list) else rows["trials"]
    assert all(row["memory_bytes"] > 0 for row in rows)
    counts = {row["arm"]: row["n_params_total"] for row in rows}
    assert counts["window"] == counts["baseline"]
