"""scalevec doctor: what it reports of machines that lack something, and what it says fixes that."""

import json
import shutil
import sys
from contextlib import suppress

import pytest

from scalevec.orchestrator.commands.look import doctor as module
from scalevec.orchestrator.errors import Exit
from scalevec.results.extras import install_command


@pytest.fixture(autouse=True)
def _idle_machine(tmp_path, monkeypatch):
    """Without SLURM, profiles and a named store."""
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "sbatch" else which(name))
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))


@pytest.fixture
def examined(scalevec):
    """The findings by name, and the exit code."""

    def examine(*arguments: str) -> tuple[dict, int]:
        done = scalevec("doctor", "--json", *arguments)
        return {finding["name"]: finding for finding in json.loads(done.stdout)}, done.returncode

    return examine


def test_a_machine_without_slurm_can_run_and_the_doctor_leaves_nothing_behind(examined, tmp_path):
    findings, code = examined("--runs", "far/away")
    assert code == Exit.DONE
    assert (findings["SLURM"]["state"], findings["SLURM"]["detail"]) == ("absent", "no sbatch here")
    assert {findings[name]["state"] for name in ("Python", "torch", "disk", "writing", "store")} == {"good"}
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_what_the_executor_needs_is_a_problem(examined):
    findings, code = examined("--executor", "slurm")
    assert (findings["SLURM"]["state"], code) == ("problem", Exit.MISSING_REQUIREMENT)


def test_without_ray_the_line_that_installs_it_is_there(examined, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    findings, code = examined()
    expected = ("absent", install_command("ray"), 0)
    assert (findings["ray"]["state"], findings["ray"]["remedy"], code) == expected
    assert examined("--executor", "ray")[1] == Exit.MISSING_REQUIREMENT


@pytest.mark.parametrize(("width", "n_lines"), [(None, 2), (40, 2), (200, 1)])
def test_a_remedy_has_a_line_of_its_own_where_one_line_would_be_too_long(width, n_lines, monkeypatch):
    monkeypatch.setattr(module, "terminal_width", lambda: width)
    finding = module.Finding("ray", "absent", "not installed", "pip install ray")
    assert len(list(module._lines(finding))) == n_lines


def test_a_device_without_room_takes_no_files(examined, small_device):
    with (small_device / "full").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    findings, code = examined("--runs", str(small_device / "runs"))
    assert (findings["disk"]["state"], findings["writing"]["state"]) == ("problem", "problem")
    assert code == Exit.MISSING_REQUIREMENT


def test_a_store_that_does_not_answer_is_a_problem_and_its_password_is_not_shown(scalevec):
    done = scalevec("--store", "postgresql://me:topsecret@127.0.0.1:1/x", "doctor")
    assert done.returncode == Exit.MISSING_REQUIREMENT
    assert "problem  store" in done.stdout
    assert "topsecret" not in done.stdout + done.stderr


def test_without_torch_the_rest_is_looked_at_all_the_same(examined, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    findings, code = examined()
    assert (findings["torch"]["state"], code) == ("problem", Exit.MISSING_REQUIREMENT)
    assert "pip install" in findings["torch"]["remedy"]
    assert findings["cache"]["state"] == "good"


def test_gpus_that_torch_does_not_see_are_named(examined, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    findings, _ = examined()
    expected = ("warning", "torch sees none, though there is CUDA_VISIBLE_DEVICES=0,1")
    assert (findings["GPUs"]["state"], findings["GPUs"]["detail"]) == expected


def test_a_broken_look_hides_no_other(examined, monkeypatch):
    def broken(_):
        raise RuntimeError("broken")

    monkeypatch.setattr(module, "_LOOKS", (broken, *module._LOOKS))
    findings, code = examined()
    assert "broken" in findings["broken"]["detail"]
    assert findings["torch"]["state"] == "good"
    assert code == Exit.MISSING_REQUIREMENT
