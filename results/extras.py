"""How to install an optional dependency from where this copy of the project stands."""

import shlex
from pathlib import Path
from typing import Literal

Extra = Literal["ray", "postgresql", "tensorboard", "wandb", "mlflow"]
_ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS: dict[Extra, str] = {
    "ray": "ray[default]>=2.40",
    "postgresql": "psycopg[binary]>=3.2",
    "tensorboard": "tensorboard>=2.15",
    "wandb": "wandb>=0.19.9",
    "mlflow": "mlflow>=2.16",
}
"""What each extra of pyproject.toml stands for; a test compares them."""


def install_command(extra: Extra, root: Path = _ROOT) -> str:
    """Return the shell command that installs what ``extra`` stands for.

    In a checkout (``root`` has a pyproject.toml) the extra is installed by path. Anywhere else the library
    itself is named: ``scalevec[ray]`` would ask a public index for a project that need not be this one.
    """
    if (root / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{root}[{extra}]')}"
    return f"pip install {shlex.quote(REQUIREMENTS[extra])}"
