"""The parts of ``benchmarks/gpu.sh`` in their order, and the JSON of what they found."""

import argparse
import math
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
from step_times import overhead_parts, small_trials, speed_parts
from workloads import CARD, TOY, Site

VERSION = 2
LIMIT_S = 520.0
"""Of all parts together: with the imports it stays under nine minutes."""
FIRST = ("machine", "head", "losses", "speed", "memory", "overhead")
"""How the parts of the first of two calls begin; a mixture's speed is left to the second."""
DEFAULT_FOLDER = Path(__file__).resolve().parents[1] / "gpu-out"


def machine(site: Site, figures: Figures) -> None:
    """What it runs on."""
    device = site.local()
    figures.keep("device", device.name)
    figures.keep("memory_bytes", device.memory_bytes)
    if site.device == "cuda":
        figures.keep("capability", list(torch.cuda.get_device_capability()))
        figures.keep("cuda", torch.version.cuda)


def parts_of(site: Site) -> list[Part]:
    """All parts: what is wanted most comes first, so that an early end costs least.

    The limits hold a cold compilation of everything that a part compiles.
    """
    return [
        Part("machine", machine, 60),
        Part("head", correctness.head, 120),
        Part("losses", correctness.losses, 180),
        *speed_parts(site),
        Part("memory", correctness.evaluation_memory, 120),
        *overhead_parts(site),
        Part("strategies", correctness.strategies, 120),
        Part("compiled", correctness.compiled_blocks, 360),
        Part("resume", correctness.resume, 180),
        Part("processes", correctness.processes, 180),
        Part("sharded", correctness.sharded_processes, 180),
        Part("small", small_trials, 240),
    ]


def chosen(parts: list[Part], names: str) -> list[Part]:
    """Those of ``parts`` that ``names`` lists, in their own order; none: all.

    ``first`` and ``second`` stand for those of two calls.
    Raises ``ValueError`` for a name that is none.
    """
    every = {part.name for part in parts}
    first = {name for name in every if name.startswith(FIRST) and "-moe" not in name}
    known = {name: {name} for name in every} | {"": every, "first": first, "second": every - first}
    if unknown := set(names.split(",")) - known.keys():
        allowed = ", ".join(["first", "second", *(part.name for part in parts)])
        raise ValueError(f"--parts: no {', '.join(sorted(unknown))}; there are {allowed}")
    wanted = set[str]().union(*(known[name] for name in names.split(",")))
    return [part for part in parts if part.name in wanted]


def _use_card() -> None:
    sys.exit(not torch.cuda.is_available() or torch.ones(1, device="cuda").item() != 1)


def has_card() -> bool:
    """Whether CUDA has a device; asked in a process of its own, since CUDA does not survive a fork."""
    process = FORK.Process(target=_use_card)
    process.start()
    process.join()
    return process.exitcode == 0


def run_all(parts: list[Part], site: Site, path: Path, limit_s: float) -> bool:
    """Run ``parts`` and keep the report in ``path`` up to date; returns whether all are well."""
    began = time.monotonic()
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
            run_part(part, site, min(part.limit_s * site.patience, left), record, changed)
        changed()
        last_line = str(record["message"]).rpartition("\n")[2]
        print(
            f"{record['status']:6} {record['wall_s']:6.1f} s  {part.name}  {last_line}".rstrip(), flush=True
        )
    return all(record["status"] == "ok" for record in records.values())


def main() -> int:
    """Run; returns 0 where all parts are well, 1 where one failed, 2 where nothing can be run."""
    names = ", ".join(part.name for part in parts_of(Site("cuda", CARD)))
    parser = argparse.ArgumentParser(prog="benchmarks/gpu.sh", description=__doc__)
    parser.add_argument("--out", type=Path, default=DEFAULT_FOLDER, help="folder of gpu.json (%(default)s)")
    parser.add_argument("--parts", default="", help=f"these alone, with commas: first, second, {names}")
    parser.add_argument("--dry", action="store_true", help="on the CPU, at toy size, compiled as on a card")
    parser.add_argument("--seconds", type=float, help=f"for all parts ({LIMIT_S:g}; with --dry no limit)")
    options = parser.parse_args()
    if not options.dry and not has_card():
        parser.error("torch finds no CUDA device here; --dry runs everything on the CPU at toy size")
    site = Site("cpu", TOY) if options.dry else Site("cuda", CARD)
    try:
        parts = chosen(parts_of(site), options.parts)
        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / "gpu.json", {})
    except ValueError as problem:
        parser.error(str(problem))
    except OSError as problem:
        parser.error(f"--out: {options.out} cannot be written ({problem}); name a folder that can")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes of a part are ended
    if options.dry:
        torch.set_num_threads(1)
    limit_s = (math.inf if options.dry else LIMIT_S) if options.seconds is None else options.seconds
    well = run_all(parts, site, options.out / "gpu.json", limit_s)
    print(f"written: {options.out / 'gpu.json'}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
