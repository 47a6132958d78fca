"""The project built and installed as others get it, once per session; nothing is fetched."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import CHECKOUT, succeeded, take_our_names

CONTENTS = ("analysis", "model", "orchestrator", "results", "sweeps", "src")
FILES = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="session")
def checkout(tmp_path_factory) -> Path:
    """A copy of the checkout in a folder called ``scalevec``, to be built where nothing was built before."""
    copy: Path = tmp_path_factory.mktemp("parent") / "scalevec"
    copy.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in CONTENTS:
        shutil.copytree(CHECKOUT / name, copy / name, ignore=unwanted)
    for name in FILES:
        shutil.copy(CHECKOUT / name, copy / name)
    return copy


def build(project: Path, kind: str, into: Path) -> Path:
    """Build a ``wheel``, an ``editable`` wheel or an ``sdist`` with the build backend of the project."""
    code = f"from hatchling import build; build.build_{kind}({str(into)!r})"
    succeeded(subprocess.run([sys.executable, "-P", "-c", code], cwd=project, capture_output=True, text=True))
    [built] = into.iterdir()
    return built


@pytest.fixture(scope="session")
def wheel(checkout, tmp_path_factory) -> Path:
    return build(checkout, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def source_archive(checkout, tmp_path_factory) -> Path:
    return build(checkout, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel_of_source_archive(source_archive, tmp_path_factory) -> Path:
    unpacked, into = tmp_path_factory.mktemp("unpacked"), tmp_path_factory.mktemp("rebuilt")
    with tarfile.open(source_archive) as archive:
        archive.extractall(unpacked, filter="data")
    [project] = unpacked.iterdir()
    return build(project, "wheel", into)


@dataclass(frozen=True)
class Installation:
    """A virtual environment with scalevec, which commands are called from; ``folder`` is a user's project."""

    binaries: Path
    folder: Path
    cache: Path

    def call(
        self, *command: object, folder: Path | None = None, pythonpath: str = "."
    ) -> subprocess.CompletedProcess[str]:
        """Run ``scalevec`` or ``python`` of the environment with ``PYTHONPATH=.``; it must succeed."""
        environment = os.environ | {"PYTHONPATH": pythonpath, "SCALEVEC_CACHE_DIR": str(self.cache)}
        words = [str(self.binaries / str(command[0])), *map(str, command[1:])]
        cwd = folder or self.folder
        done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done


@pytest.fixture(scope="session", params=["wheel", pytest.param("editable", marks=pytest.mark.nightly)])
def installed(request, checkout, tmp_path_factory) -> Installation:
    """Scalevec in a fresh environment, which borrows what it depends on from the one that runs the tests."""
    environment = tmp_path_factory.mktemp(request.param)
    venv.create(environment / "venv", with_pip=False, symlinks=True)
    python = environment / "venv" / "bin" / "python"
    (environment / "built").mkdir()
    built = build(checkout, request.param, environment / "built")
    options = ["--quiet", "--disable-pip-version-check", "install", "--no-deps", "--no-index"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *options, built], check=True)
    # A .pth file is not read in a folder that another one names: our own editable install stays out of sight.
    [packages] = (environment / "venv" / "lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    folder = take_our_names(tmp_path_factory.mktemp("user"))
    return Installation(python.parent, folder, environment / "cache")
