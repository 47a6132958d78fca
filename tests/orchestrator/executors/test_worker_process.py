"""What a worker is started with for a GPU: memory that grows, and a few processes that compile."""

import os

import pytest

from scalevec.model.train.step import keep_compiled_in
from scalevec.orchestrator.executors.forked_workers import worker_environment


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
