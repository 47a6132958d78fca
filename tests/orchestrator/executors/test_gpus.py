"""Which GPUs this machine has, by torch's answer, and what a worker is started with for one."""

import os

import pytest

from contracts.bench import ProcessBench
from contracts.executor_contract import collect
from scalevec.model.train.step import keep_compiled_in
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.forked_workers import worker_environment
from scalevec.orchestrator.executors.local import local_executor
from scalevec.orchestrator.executors.local.local_executor import sign_of_gpus, visible_gpus
from support import run_python


@pytest.fixture(autouse=True)
def _nothing_chosen(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("hidden", ["", "-1", "-1,0", "NoDevFiles", " -1"])
@pytest.mark.parametrize("variable", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_a_variable_that_hides_gpus_leaves_none_without_torch(variable, hidden, monkeypatch, gpus_of_torch):
    gpus_of_torch(2)
    monkeypatch.setattr(local_executor, "_COUNT", "raise SystemExit('was asked')")
    monkeypatch.setenv(variable, hidden)
    assert (visible_gpus().names, sign_of_gpus()) == ((), "")


def test_without_a_variable_gpus_have_the_numbers_that_torch_gives_them(gpus_of_torch):
    gpus_of_torch(2)
    assert visible_gpus() == (("0", "1"), "CUDA_VISIBLE_DEVICES")


def test_names_behind_one_that_is_no_gpu_do_not_count(monkeypatch, gpus_of_torch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1a, 3,-1,2")
    gpus_of_torch(2)
    assert visible_gpus().names == ("GPU-1a", "3")


def test_rocm_chooses_by_its_own_variable_where_that_is_given(monkeypatch, gpus_of_torch):
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,3")
    gpus_of_torch(2, rocm=True)
    assert visible_gpus() == (("2", "3"), "HIP_VISIBLE_DEVICES")
    gpus_of_torch(2)
    assert visible_gpus() == (("0", "1"), "CUDA_VISIBLE_DEVICES")


def test_torch_is_asked_in_a_process_that_ends():
    name = local_executor.__name__
    done = run_python(f"import sys, {name} as here; here.visible_gpus(); print('torch' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


def test_a_torch_that_cannot_be_asked_is_told_with_its_last_words(monkeypatch, gpus_of_torch):
    gpus_of_torch(1)
    monkeypatch.setattr(local_executor, "_COUNT", "raise ImportError('libcudart.so.12: not there')")
    with pytest.raises(MissingRequirementError, match=r"which GPUs are here: ImportError: libcudart.so.12"):
        visible_gpus()


def test_a_run_that_asks_for_no_gpu_asks_nobody(monkeypatch, tmp_path):
    monkeypatch.setattr(local_executor, "visible_gpus", None)
    bench = ProcessBench("local", tmp_path)
    executor = bench.executor(1)
    executor.submit([bench.job("completes")])
    assert len(collect(executor, 1)) == 1
    bench.close()


def test_segments_of_gpu_memory_grow(monkeypatch):
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    assert worker_environment()["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_what_a_person_has_set_of_gpu_memory_stays(name, monkeypatch):
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv(name, "max_split_size_mb:64")
    kept = {name: value for name, value in worker_environment().items() if "ALLOC_CONF" in name}
    assert kept == {name: "max_split_size_mb:64"}


@pytest.mark.parametrize(("device", "threads"), [("cpu", "1"), ("cuda", "3")])
def test_a_gpu_trial_compiles_in_a_few_of_the_cores_it_may_use(device, threads, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "")
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    keep_compiled_in(tmp_path, device)
    assert os.environ["TORCHINDUCTOR_COMPILE_THREADS"] == threads
