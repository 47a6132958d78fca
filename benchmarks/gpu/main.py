"""The parts of ``benchmarks/gpu.sh`` in their order, and the JSON of what they found."""

import argparse
import platform
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import correctness
import torch
import torch._dynamo  # used by the first step of an optimizer: once here, not in each process of each part
from parts import FORK, Figures, Part, Record, run_part, write_json
from step_times import speed_parts
from workloads import CARD, TOY, Site

from scalevec.model.train.speed import precisions_of

VERSION = 1
LIMIT_S = 520.0
"""Of all parts together: with the imports it stays under nine minutes."""
DEFAULT_FOLDER = Path(__file__).resolve().parents[1] / "gpu-out"


def machine(site: Site, figures: Figures) -> None:
    """What it runs on."""
    device = site.local()
    figures.keep("device", device.name)
    figures.keep("memory_bytes", device.memory_bytes)
    figures.keep("precisions", precisions_of(device.device))
    if site.device == "cuda":
        figures.keep("capability", list(torch.cuda.get_device_capability()))
        figures.keep("cuda", torch.version.cuda)


def parts_of(site: Site) -> list[Part]:
    """All parts, correctness first."""
    return [
        Part("machine", machine, 40),
        Part("losses against the CPU in float32", correctness.losses, 90),
        Part("compiled blocks", correctness.compiled_blocks, 180),
        Part("strategies against the CPU in float32", correctness.strategies, 60),
        Part("resume", correctness.resume, 60),
        Part("two processes", correctness.processes, 60),
        Part("two processes, sharded", correctness.sharded_processes, 60),
        Part("memory of an evaluation", correctness.evaluation_memory, 40),
        *speed_parts(site),
    ]


def _use_card() -> None:
    sys.exit(not torch.cuda.is_available() or torch.ones(1, device="cuda").item() != 1)


def has_card() -> bool:
    """Whether CUDA has a device; asked in a process of its own, since CUDA does not survive a fork."""
    process = FORK.Process(target=_use_card)
    process.start()
    process.join()
    return process.exitcode == 0


def run_all(site: Site, path: Path, limit_s: float) -> bool:
    """Run the parts and keep the report in ``path`` up to date; returns whether all are well."""
    began, parts = time.monotonic(), parts_of(site)
    records: dict[str, Record] = {
        part.name: {"status": "not run", "message": "", "wall_s": 0.0, "figures": {}} for part in parts
    }
    report: dict[str, Any] = {
        "version": VERSION,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": site.device,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "wall_s": 0.0,
        "parts": records,
    }

    def changed() -> None:
        report["wall_s"] = round(time.monotonic() - began, 2)
        write_json(path, report)

    for part in parts:
        record, left = records[part.name], limit_s - (time.monotonic() - began)
        if left < 1:
            record |= {"status": "failed", "message": "there was no time left for it"}
        else:
            run_part(part, site, min(part.limit_s, left), record, changed)
        changed()
        last_line = str(record["message"]).rpartition("\n")[2]
        print(
            f"{record['status']:6} {record['wall_s']:6.1f} s  {part.name}  {last_line}".rstrip(), flush=True
        )
    return all(record["status"] == "ok" for record in records.values())


def main() -> int:
    """Run; returns 0 where all parts are well, 1 where one failed, 2 where nothing can be run."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu.sh", description=__doc__)
    parser.add_argument("--out", type=Path, default=DEFAULT_FOLDER, help="folder of gpu.json (%(default)s)")
    parser.add_argument("--dry", action="store_true", help="all of it on the CPU, at toy size")
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help="for all parts (%(default)g)")
    options = parser.parse_args()
    if not options.dry and not has_card():
        parser.error("torch finds no CUDA device here; --dry runs everything on the CPU at toy size")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / "gpu.json", {})
    except OSError as problem:
        parser.error(f"--out: {options.out} cannot be written ({problem}); name a folder that can")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes of a part are ended
    if options.dry:
        torch.set_num_threads(1)
    site = Site("cpu", TOY) if options.dry else Site("cuda", CARD)
    well = run_all(site, options.out / "gpu.json", options.seconds)
    print(f"written: {options.out / 'gpu.json'}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
