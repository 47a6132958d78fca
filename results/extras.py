"""How to install an optional dependency from where this copy of the project stands."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

Extra = Literal["train", "ray", "postgresql", "tensorboard", "wandb", "mlflow"]
_ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS: dict[Extra, tuple[str, ...]] = {
    "train": (
        "torch>=2.9,<3",
        "tokenizers>=0.21",
        "huggingface-hub>=0.30",
        "safetensors>=0.5",
        "submitit>=1.5.3,<2",
        "pytorch-optimizer>=4.1,<5",
        "setproctitle>=1.3",
    ),
    "ray": ("ray[default]>=2.40",),
    "postgresql": ("psycopg[binary]>=3.2",),
    "tensorboard": ("tensorboard>=2.15",),
    "wandb": ("wandb>=0.19.9",),
    "mlflow": ("mlflow>=2.16",),
}
"""What each extra of pyproject.toml stands for; a test compares them."""


def packages_of(extra: Extra) -> list[str]:
    """Return the names of the distributions that ``extra`` stands for."""
    return [re.split(r"[\[<>=]", requirement)[0] for requirement in REQUIREMENTS[extra]]


def extra_of(module: str) -> Extra | None:
    """Return the extra that brings ``module`` (``torch.nn``); None where none does."""
    for extra in REQUIREMENTS:
        if module.split(".")[0] in map(_module, packages_of(extra)):
            return extra
    return None


def missing_package(extra: Extra) -> str | None:
    """Return the first distribution of ``extra`` that is not installed; None where all are."""
    return next((name for name in packages_of(extra) if find_spec(_module(name)) is None), None)


def _module(package: str) -> str:
    return package.replace("-", "_")


def install_command(extra: Extra, root: Path = _ROOT) -> str:
    """Return the shell command that installs what ``extra`` stands for.

    In a checkout (``root`` has a pyproject.toml) the extra is installed by path. Anywhere else the libraries
    themselves are named: ``scalevec[ray]`` would ask a public index for a project that need not be this one.
    """
    if (root / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{root}[{extra}]')}"
    return f"pip install {shlex.join(REQUIREMENTS[extra])}"
