"""Devices: what their names mean, what share of its peak a rate is, what this machine has and can do."""

import pytest
import torch

from scalevec.model.train import devices


@pytest.mark.parametrize(
    ("of_driver", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144gb"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
    ],
)
def test_the_drivers_names_are_known(of_driver: str, key: str) -> None:
    assert devices.device_named(of_driver) is devices.DEVICES[key]
    assert devices.device_named(key) is devices.DEVICES[key]


@pytest.mark.parametrize(
    "name", [None, "NVIDIA A10G", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"]
)
def test_other_cards_and_parts_of_a_card_are_not_taken_for_a_known_one(name: str | None) -> None:
    assert devices.device_named(name) is None


def test_the_share_is_that_of_all_devices_at_the_precision_of_the_trial() -> None:
    card = "NVIDIA H100 80GB HBM3"
    share = devices.model_flops_utilization(6e9, 989.4e12 / 6e9, "bfloat16", card, devices=4)
    assert share == pytest.approx(0.25)
    whole = devices.model_flops_utilization(6e9, 66.9e12 / 6e9, "float32", card)
    assert whole == pytest.approx(1)


@pytest.mark.parametrize(
    ("precision", "card", "why"),
    [
        ("float32", "a card of tomorrow", "the table of peaks has no 'a card of tomorrow'"),
        ("bfloat16", "Tesla V100-SXM2-32GB", "V100 has no products in bfloat16"),
    ],
)
def test_where_there_is_no_peak_there_is_no_share_and_it_is_said(precision, card, why) -> None:
    assert devices.model_flops_utilization(6e9, 1e5, precision, card) is None
    assert why in devices.unknown_peak(precision, card)


def test_what_is_missing_to_compile_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    assert devices.missing_compiler("cpu").startswith("a compiler (g++)")
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    assert devices.missing_compiler("cuda").startswith("the package triton and a compiler (")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
    ],
)
def test_too_little_memory_is_known_whoever_says_so(error):
    assert devices.is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("CUDA error: out of memory"),
    ],
)
def test_other_errors_are_not_taken_for_it(error):
    assert not devices.is_out_of_memory(error)
