"""What is kept is what any processor computes: tests marked ``kept`` under the settings of others."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy._core import _multiarray_umath as numpy_core

from support import CHECKOUT

TESTS = Path(__file__).parent
# What this processor has beyond the least that numpy is built for.
NUMPY_EXTRAS = [name for name in numpy_core.__cpu_dispatch__ if numpy_core.__cpu_features__[name]]
OF_ANALYSIS = {
    "no extras of numpy": {"NPY_DISABLE_CPU_FEATURES": " ".join(NUMPY_EXTRAS)},
    "BLAS of Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "BLAS of Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
    "C library without FMA": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA"},
}
OF_TORCH = {"ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}


def run_tests(settings: dict[str, str], *arguments: str) -> str:
    """Return what pytest printed under ``settings``; it must have passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | settings
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    return done.stdout


def files_with_kept_results() -> list[str]:
    marked = "pytest.mark." + "kept"
    paths = sorted(path for path in TESTS.rglob("test_*.py") if marked in path.read_text("utf-8"))
    return [str(path.relative_to(CHECKOUT)) for path in paths]


def test_the_settings_reach_the_libraries():
    code = "from numpy._core._multiarray_umath import __cpu_features__ as f; print([n for n in {} if f[n]])"
    command, settings = [sys.executable, "-c", code.format(NUMPY_EXTRAS)], OF_ANALYSIS["no extras of numpy"]
    shown = subprocess.check_output(command, env=os.environ | settings, text=True)
    assert shown.strip() == "[]", f"numpy {np.__version__}"


@pytest.mark.nightly
@pytest.mark.slow
def test_what_is_kept_is_what_the_least_processor_computes():
    settings = {name: value for of_one in OF_ANALYSIS.values() for name, value in of_one.items()} | OF_TORCH
    assert settings["OPENBLAS_CORETYPE"] == "Nehalem"
    assert "passed" in run_tests(settings, "-m", "kept and not slow", *files_with_kept_results())


@pytest.mark.nightly
@pytest.mark.parametrize("name", OF_ANALYSIS)
def test_every_kept_table_is_what_another_processor_computes(name):
    assert "passed" in run_tests(OF_ANALYSIS[name], "-m", "kept", *files_with_kept_results())


@pytest.mark.nightly
def test_the_tests_of_the_model_pass_without_the_extras_of_this_processor(tmp_path: Path):
    # torch keeps compiled code as if processors were alike, and compiles bfloat16 for AVX-512 all the same.
    settings = OF_TORCH | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    assert "passed" in run_tests(settings, "tests/model", "-k", "not (compiled and bfloat16)")
