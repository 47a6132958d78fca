"""A plugin that tests make: an optimizer with options, a schedule, arithmetic of scale vectors and a law."""

import subprocess
import sys
from pathlib import Path

ARMS = '''\
"""An optimizer, a schedule and a law."""

import math

import torch

from mylab.signs import sign_of
from scalevec import plugins


class SignMomentum(torch.optim.Optimizer):
    """The sign of a momentum."""

    def __init__(self, groups, lr, kappa, shape):
        super().__init__(groups, {"lr": lr})
        self.kappa, self.shape = kappa, shape

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                moment = state.setdefault("moment", torch.zeros_like(parameter))
                moment.lerp_(parameter.grad, 1 - self.kappa)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(sign_of(moment, self.shape), alpha=-group["lr"])


@plugins.optimizer("sign-momentum", allowed={"kappa": "[0, 1)", "shape": ["hard", "soft"]}, state=1)
def sign_momentum(groups, config, *, kappa: float = 0.9, shape="hard"):
    return SignMomentum(groups, config.learning_rate, kappa, shape)


@plugins.schedule("half-power", allowed={"power": "(0, inf)"})
def half_power(trial, tokens, *, power: float = 0.5):
    return math.pow(1 - tokens / trial.tokens, power)


@plugins.reparameterization("softplus", beta=0.0, alpha=0.5413248546129181)
def softplus(beta, alpha):
    return torch.nn.functional.softplus(beta + alpha)


plugins.law("floor-in-n", "E + A/N^alpha", source="this test")
'''
SIGNS = """\
def sign_of(moment, shape):
    return moment.sign() if shape == "hard" else moment.tanh()
"""
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "mylab"
version = "1.0"
"""
SWEEP = """\
name: plugged
plugins: [mylab.arms]
corpus: {{source: text, files: ["{text}/*.txt"], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 128, evaluation_tokens: 512}}
ladder: [{{name: a, width: 16, layers: 1}}]
tokens: [1280]
arms:
  baseline: {{optimizer: adamw, schedule: cosine, learning_rate: 0.01}}
  signs: {{optimizer: sign-momentum, kappa: 0.8, schedule: half-power, learning_rate: 0.001,
          scale_vectors: {{preset: or, reparameterization: softplus}}}}
seeds: [0]
compare: {{law: floor-in-n}}
"""


def write_plugin(folder: Path, arms: str = ARMS) -> Path:
    """Make the package ``mylab`` in ``folder``."""
    package = folder / "mylab"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "signs.py").write_text(SIGNS)
    (package / "arms.py").write_text(arms)
    return package


def install(folder: Path, arms: str = ARMS) -> None:
    """Build a wheel of the plugin, and install it into ``folder``/site."""
    project = folder / "project"
    write_plugin(project, arms)
    (project / "pyproject.toml").write_text(PROJECT)
    code = f"from hatchling import build; build.build_wheel({str(folder / 'dist')!r})"
    subprocess.run([sys.executable, "-P", "-c", code], cwd=project, check=True)
    [wheel] = (folder / "dist").iterdir()
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--target", folder / "site", wheel], check=True)
