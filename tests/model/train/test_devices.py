"""Which device a name means, and what share of its peak a rate is."""

import pytest

from scalevec.model.train import devices
from scalevec.model.train.devices import (
    DEVICES,
    device_named,
    missing_compiler,
    model_flops_utilization,
    unknown_peak,
)


@pytest.mark.parametrize(
    ("of_driver", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144gb"),
        ("NVIDIA A10", "a10"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_the_drivers_names_are_known(of_driver: str, key: str) -> None:
    assert device_named(of_driver) is DEVICES[key]
    assert device_named(key) is DEVICES[key]


@pytest.mark.parametrize(
    "name",
    [
        None,
        "NVIDIA A10G",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "Tesla V100-PCIE-16GB",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    ],
)
def test_other_cards_and_parts_of_a_card_are_not_taken_for_a_known_one(name: str | None) -> None:
    assert device_named(name) is None


def test_the_share_is_that_of_all_devices_at_the_precision_of_the_trial() -> None:
    share = model_flops_utilization(6e9, 989.4e12 / 6e9, "bfloat16", "NVIDIA H100 80GB HBM3", devices=4)
    assert share == pytest.approx(0.25)
    whole = model_flops_utilization(6e9, 66.9e12 / 6e9, "float32", "NVIDIA H100 80GB HBM3")
    assert whole == pytest.approx(1)


@pytest.mark.parametrize(
    ("precision", "card", "why"),
    [
        ("float32", "a card of tomorrow", "the table of peaks has no 'a card of tomorrow'"),
        ("bfloat16", "Tesla V100-SXM2-32GB", "V100 has no products in bfloat16"),
    ],
)
def test_where_there_is_no_peak_there_is_no_share_and_it_is_said(precision, card, why) -> None:
    assert model_flops_utilization(6e9, 1e5, precision, card) is None
    assert why in unknown_peak(precision, card)


def test_every_figure_has_its_source() -> None:
    assert all(device.source for device in DEVICES.values())


def test_what_is_missing_to_compile_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    assert missing_compiler("cpu").startswith("a compiler (g++)")
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    assert missing_compiler("cuda").startswith("the package triton and a compiler (")
