"""The project as others get it: what is in the wheel, and that it works beside packages with our names."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

import scalevec
from support import CHECKOUT, run_python

LINK_MODE = "120000"
PACKAGES = ("analysis", "model", "orchestrator", "results", "sweeps")
SWEEP = """\
name: tiny
corpus: {{source: text, files: ["{text}/argparse.txt"], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 256, learning_rate: 0.02}}
ladder: [{{name: a, width: 16, layers: 1}}]
tokens_per_parameter: [2]
arms:
  baseline: {{scale_vectors: baseline}}
  unified: {{scale_vectors: unified}}
seeds: [0]
"""
COMPARE = """
import sys
import pandas as pd
import scalevec
results = pd.DataFrame(
    {"arm": arm, "n_params": size, "n_tokens": 16 * size, "seed": seed,
     "loss": 4 - size / 1e6 - gain - seed * (0.001 + gain / 9)}
    for arm, gain in (("baseline", 0.0), ("new", 0.05))
    for size in (25e3, 55e3, 83e3)
    for seed in (0, 1)
)
comparison = scalevec.compare(results, "baseline").only
print(comparison.verdict, "torch" in sys.modules)
"""


def project_files() -> set[str]:
    """What a wheel must hold of the five packages: modules, sweep files, templates and styles."""
    return {
        f"scalevec/{path.relative_to(CHECKOUT)}"
        for package in PACKAGES
        for path in (CHECKOUT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_the_wheel_holds_every_file_of_the_packages_and_its_only_name_is_scalevec(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = project_files() | {f"scalevec/{name}" for name in ("__init__.py", "plugins.py", "py.typed")}
    assert names == expected
    assert {"scalevec/sweeps/paper/main.yaml", "scalevec/sweeps/small/main.yaml"} <= names


def test_the_wheel_has_the_version_that_the_package_says(wheel):
    assert wheel.name == f"scalevec-{scalevec.__version__}-py3-none-any.whl"


def test_the_only_symbolic_links_are_those_of_the_five_packages():
    command = ["git", "ls-files", "--stage"]
    listing = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    links = [line.split()[-1] for line in listing.stdout.splitlines() if line.startswith(LINK_MODE)]
    assert links == [f"src/scalevec/{package}" for package in PACKAGES]
    assert all((CHECKOUT / link).resolve() == CHECKOUT / Path(link).name for link in links)


def test_an_unpacked_wheel_looks_for_its_packages_in_its_folder_only(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    done = run_python(f"{path}; import scalevec; print(*scalevec.__path__)")
    assert done.stdout.split() == [str(tmp_path / "scalevec")]


def test_a_wheel_built_from_the_source_archive_holds_the_same(wheel, wheel_of_source_archive):
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(wheel_of_source_archive) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())


@pytest.mark.slow
def test_help_answers_beside_packages_with_our_names(installed):
    assert "Usage: scalevec" in installed.call("scalevec", "--help").stdout


@pytest.mark.slow
def test_a_sweep_is_trained_and_reported_beside_packages_with_our_names(installed, text_files):
    (installed.folder / "tiny.yaml").write_text(SWEEP.format(text=text_files))
    installed.call("scalevec", "run", "tiny.yaml")
    code = "import scalevec; print(*scalevec.open('runs').results('tiny').status)"
    assert installed.call("python", "-c", code).stdout.split() == ["completed"] * 2
    snapshots = Path(os.environ["SCALEVEC_PRIVATE_DIR"]).glob("snapshots/*/scalevec/analysis/__init__.py")
    assert list(snapshots)
    installed.call("scalevec", "report", "tiny", "-o", "report.html")
    assert "unified" in (installed.folder / "report.html").read_text()


@pytest.mark.nightly
def test_a_shipped_sweep_is_planned_by_name_beside_packages_with_our_names(installed):
    assert "unified" in installed.call("scalevec", "plan", "paper/main", "--without-corpus").stdout


@pytest.mark.slow
def test_a_shipped_sweep_is_simulated_by_name_beside_packages_with_our_names(installed):
    installed.call("scalevec", "run", "simulate", "--executor", "simulate")
    assert (installed.folder / "runs" / "simulated" / "sweeps" / "simulate").is_dir()


@pytest.mark.slow
def test_arms_are_compared_in_python_beside_packages_with_our_names_and_without_torch(installed):
    assert installed.call("python", "-c", COMPARE).stdout.split() == ["better", "False"]


@pytest.mark.slow
@pytest.mark.parametrize("pythonpath", ["", "."])
def test_the_folder_of_a_checkout_is_not_taken_for_the_package(installed, checkout, pythonpath):
    code = "import scalevec; print(scalevec.__version__, scalevec.fit.__name__)"
    where = {"folder": checkout.parent, "pythonpath": pythonpath}
    assert installed.call("python", "-c", code, **where).stdout.split()[1] == "fit"
    installed.call("scalevec", "schema", **where)
