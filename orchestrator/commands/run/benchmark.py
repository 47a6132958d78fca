"""``scalevec benchmark``: how fast this machine trains, which its plans then reckon with."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.progress import aligned, note

if TYPE_CHECKING:
    from scalevec.orchestrator.costs.rates import MeasuredDevice, MeasuredMachine, MeasuredRate


def benchmark(
    seconds: Annotated[
        float, typer.Option(metavar="S", min=0.1, max=3600, help="About how long to measure.")
    ] = 60.0,
) -> Result:
    """Measure how fast this machine trains, for its plans.

    Each CUDA device, or the cores of the CPU where there is none (all at once, one thread each), takes
    training steps at up to three sizes, in each precision that it computes in. The figures are kept for this
    machine, and plans of trials that run on it reckon with them.
    """
    from scalevec.orchestrator.costs.benchmarks import measured_machine

    machine = measured_machine(seconds, note)
    if not any(device.rates for device in machine.devices):
        raise MissingRequirementError("no device could train any size; the lines above say why")
    path = machine.keep()
    note(f"kept in {path}")
    return Result(_record(machine) | {"path": str(path)}, _text(machine))


def _record(machine: "MeasuredMachine") -> dict[str, Any]:
    from scalevec.model.fields import to_dict

    record: dict[str, Any] = to_dict(machine)
    for device, of_device in zip(machine.devices, record["devices"], strict=True):
        for rate, of_rate in zip(device.rates, of_device["rates"], strict=True):
            of_rate["tokens_per_s"], of_rate["flops_per_s"] = rate.tokens_per_s, rate.flops_per_s
            of_rate["share_of_peak"] = device.share_of_peak(rate)
    return record


def _text(machine: "MeasuredMachine") -> str:
    lines = []
    for device in machine.devices:
        threads = f", {device.at_once} at a time, one thread each" if device.kind == "cpu" else ""
        lines.append(f"{device.device}: {device.name}{threads}, {device.memory_bytes / 1e9:,.1f} GB")
        rows = [["size", "N", "precision", "tokens/s", "FLOP/s", "of peak", "step"]]
        rows += [_cells(device, rate) for rate in device.rates]
        lines += [f"  {line}" for line in aligned(rows, to_the_left=(0, 2))]
    return "\n".join(lines)


def _cells(device: "MeasuredDevice", rate: "MeasuredRate") -> list[str]:
    share = device.share_of_peak(rate)
    return [
        *(rate.size, f"{rate.n_params:,}", rate.precision),
        *(f"{rate.tokens_per_s:,.0f}", f"{rate.flops_per_s:.2e}".replace("e+", "e")),
        *("unknown" if share is None else f"{share:.0%}", f"{rate.step_s * 1e3:,.3g} ms"),
    ]
