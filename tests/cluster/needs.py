"""What the cluster tests ask of the machine that runs them."""

import os
import shutil
import socket
from importlib.util import find_spec
from typing import NoReturn

import pytest


def require(tool: str, install: str) -> None:
    """Skip where the program ``tool`` is missing, saying how to get it; in CI such a skip is a failure."""
    if shutil.which(tool) is None:
        missing(tool, install)


def require_package(module: str, install: str) -> None:
    """As :func:`require`, for a Python package."""
    if find_spec(module) is None:
        missing(module, install)


def missing(what: str, install: str) -> NoReturn:
    """Skip (in CI: fail) because ``what`` is not there."""
    message = f"{what} is missing: {install}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def only_loopback() -> bool:
    """Whether this process can neither reach, nor be reached from, another machine."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]
