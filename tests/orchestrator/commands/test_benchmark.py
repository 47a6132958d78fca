"""scalevec benchmark: what is measured and kept, and that the plans of this machine reckon with it."""

import json
import multiprocessing
from dataclasses import replace

import pytest
import yaml

from scalevec.orchestrator.commands.run.benchmark import benchmark
from scalevec.orchestrator.costs import benchmarks
from scalevec.orchestrator.costs.rates import measured_here, rates_path
from scalevec.orchestrator.errors import Exit

SWEEP = {
    "name": "small",
    "corpus": {"source": "synthetic"},
    "trial": {"batch_tokens": 1024},
    "ladder": ["tiny-25k"],
    "tokens_per_parameter": 16,
    "arms": {"baseline": {"scale_vectors": "baseline"}},
}


@pytest.fixture
def only_tiny(tmp_path, monkeypatch):
    """One size, one precision, and a cache folder of its own."""
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    work = benchmarks.WORKLOADS["cpu"]
    tiny = {name: work.sizes[name] for name in ("tiny-25k",)}
    monkeypatch.setitem(benchmarks.WORKLOADS, "cpu", replace(work, sizes=tiny))
    monkeypatch.setattr(benchmarks, "precisions_of", lambda _: ["float32"])


@pytest.fixture
def planned(scalevec, tmp_path):
    def plan(*arguments: str) -> list[dict]:
        (tmp_path / "small.yaml").write_text(yaml.safe_dump(SWEEP))
        done = scalevec("plan", "small.yaml", "--json", *arguments)
        assert done.returncode == Exit.DONE, done.stderr
        return json.loads(done.stdout)

    return plan


def test_the_plan_of_this_machine_reckons_with_what_was_measured(scalevec, planned, only_tiny):
    done = scalevec("benchmark", "--seconds", "0.2", "--json")
    assert done.returncode == Exit.DONE, done.stderr
    record = json.loads(done.stdout)
    (device,) = record["devices"]
    (rate,) = device["rates"]
    assert (device["device"], record["threads"], rate["size"]) == ("cpu", 1, "tiny-25k")
    assert rate["tokens_per_s"] == pytest.approx(rate["batch_tokens"] / rate["step_s"])
    assert rate["share_of_peak"] is None
    row = planned()[0]
    assert row["flops_per_s"] == pytest.approx(rate["flops_per_s"])
    assert row["rate"].startswith(f"measured here on {record['measured'][:10]}")
    assert row["seconds"] == pytest.approx(1 + row["flops"] / rate["flops_per_s"])


def test_the_cores_of_a_cpu_are_measured_side_by_side(only_tiny, monkeypatch):
    all_three = multiprocessing.get_context("fork").Barrier(3, timeout=60)

    def timed(*_: object) -> list[float]:
        all_three.wait()
        return [1.0, 2.0, 2.0]

    monkeypatch.setattr(benchmarks, "usable_cpus", lambda: 3)
    monkeypatch.setattr(benchmarks, "steps_timed", timed)
    (device,) = benchmarks.measured_machine(0.1, lambda _: None).devices
    assert (device.at_once, device.rates[0].steps, device.rates[0].step_s) == (3, 9, 2.0)


def test_a_plan_for_elsewhere_does_not(planned, only_tiny):
    benchmarks.measured_machine(0.1, lambda _: None).keep()
    assert planned()[0]["rate"] != "assumed"
    assert {planned("--executor", name)[0]["rate"] for name in ("slurm", "simulate", "ray")} == {"assumed"}


def test_the_plan_says_where_its_times_come_from(scalevec, planned, only_tiny):
    planned()
    assert "at 3.5e+10 FLOPs per second, assumed (scalevec benchmark" in scalevec("plan", "small.yaml").stdout
    benchmarks.measured_machine(0.1, lambda _: None).keep()
    shown = scalevec("plan", "small.yaml").stdout
    assert "FLOPs per second, measured here on " in shown
    assert "assumed" not in shown.partition("with 80 % power")[0]


def test_an_interrupted_measurement_leaves_the_old_figures(only_tiny, monkeypatch):
    benchmark(seconds=0.1)
    before = rates_path().read_bytes()

    def interrupted(*_: object) -> list[float]:
        raise KeyboardInterrupt

    monkeypatch.setattr(benchmarks, "steps_timed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        benchmark(seconds=0.1)
    assert rates_path().read_bytes() == before
    assert [path.name for path in rates_path().parent.iterdir()] == [rates_path().name]


def test_what_cannot_be_measured_is_left_out_with_the_reason(scalevec, only_tiny, monkeypatch):
    def refused(*_: object) -> list[float]:
        raise RuntimeError("the device is in use\nwith a long trace")

    monkeypatch.setattr(benchmarks, "steps_timed", refused)
    done = scalevec("benchmark", "--seconds", "0.1")
    assert done.returncode == Exit.MISSING_REQUIREMENT
    assert "cpu, tiny-25k, float32: left out, the device is in use\n" in done.stderr
    assert measured_here(pytest.fail).measured is None


def test_a_size_that_does_not_fit_is_not_tried(only_tiny, monkeypatch):
    (device,) = benchmarks.devices_here()
    monkeypatch.setattr(benchmarks, "devices_here", lambda: [replace(device, memory_bytes=10**6)])
    messages: list[str] = []
    (measured,) = benchmarks.measured_machine(0.1, messages.append).devices
    assert measured.rates == ()
    assert messages[-1] == "cpu, tiny-25k, float32: left out, it would not fit in 0.001 GB"


def test_gpus_are_measured_at_their_own_sizes_with_the_largest_micro_batch_that_fits(monkeypatch):
    cards = [benchmarks.LocalDevice(f"cuda:{n}", "NVIDIA L4", gb * 10**9) for n, gb in enumerate((24, 80))]
    monkeypatch.setattr(benchmarks, "devices_here", lambda: cards)
    monkeypatch.setattr(benchmarks, "precisions_of", lambda _: ["bfloat16"])
    taken = []

    def timed(trial, _corpus, options, seconds):
        taken.append((options.device, options.micro_batch, seconds))
        return [2.0, 1.0, 1.0]

    monkeypatch.setattr(benchmarks, "steps_timed", timed)
    small, large = benchmarks.measured_machine(60.0, lambda _: None).devices
    assert [rate.size for rate in small.rates] == list(benchmarks.WORKLOADS["cuda"].sizes)
    assert {(device, seconds) for device, _, seconds in taken} == {("cuda:0", 10.0), ("cuda:1", 10.0)}
    of_small, of_large = (rates[-1].micro_batch for rates in (small.rates, large.rates))
    assert 0 < of_small < of_large < 64
    share = small.share_of_peak(small.rates[-1])
    assert share == pytest.approx(small.rates[-1].flops_per_s / 121e12)
