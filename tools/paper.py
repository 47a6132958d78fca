"""The small siblings of the paper's experiments, from training to tables and figures.

    python tools/paper.py small [NAME ...]    whole, kept in benchmarks/reference/small
    python tools/paper.py smoke [NAME ...]    a cut of each, to see that all of it works, in runs/smoke

Each NAME is a file of ``sweeps/small``; of the whole ones decay and trend are run only by name. What is
trained already is not trained again: stop it and go on.
"""

import argparse
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
SMALL = CHECKOUT / "sweeps" / "small"
KEPT = CHECKOUT / "benchmarks" / "reference" / "small"
SMOKE = CHECKOUT / "runs" / "smoke"
FORMATS = {"markdown": "md", "latex": "tex", "csv": "csv"}
TABLES: dict[str, tuple[str, ...]] = {
    "removal": ("main",),
    "removal-tuned": ("main",),
    "ablation": ("ablation",),
    "main": ("main",),
    "mixture": ("main",),
    "optimizers": ("optimizers",),
    "scaling": ("scaling",),
    "overhead": ("overhead",),
    "theory": (),
    "decay": ("decay",),
    "trend": ("main",),
}
"""The tables of each small sweep."""
LONG = ("decay", "trend")
"""Sweeps of hours, which are run when they are named: ``make paper-decay``, ``make paper-trend``."""

Fields = dict[str, Any]
Output = tuple[tuple[str, ...], Path | None]


def main() -> int:
    """Run what is asked for; returns the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("size", choices=("small", "smoke"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TABLES))
    asked = parser.parse_args()
    if unknown := set(asked.names) - TABLES.keys():
        parser.error(f"no small sweep is called {', '.join(sorted(unknown))}; there are: {', '.join(TABLES)}")
    make = _small if asked.size == "small" else _smoke
    left_out = LONG if asked.size == "small" else ()
    for name in asked.names or (name for name in TABLES if name not in left_out):
        began = time.monotonic()
        code = make(name)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        if code:
            return code
    return 0


def _small(name: str) -> int:
    return _experiment(SMALL / f"{name}.yaml", name, KEPT / name, "pdf,svg,png")


def _smoke(name: str) -> int:
    fields = cut(yaml.safe_load((SMALL / f"{name}.yaml").read_text(encoding="utf-8")))
    SMOKE.mkdir(parents=True, exist_ok=True)
    path = SMOKE / f"{name}.yaml"
    path.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
    return _experiment(path, name, SMOKE / name, "svg")


def _experiment(path: Path, name: str, folder: Path, pictures: str) -> int:
    """Train what is missing of the sweep at ``path``, then write its results, tables and figures."""
    # Where time is measured, trials run one by one.
    alone = ("--jobs", "1") if name == "overhead" else ()
    if code := _scalevec("run", str(path), *alone):
        return code
    folder.mkdir(parents=True, exist_ok=True)
    outputs = _outputs(str(path), name, folder, pictures)
    return next((code for arguments, to in outputs if (code := _scalevec(*arguments, to=to))), 0)


def _outputs(source: str, name: str, folder: Path, pictures: str) -> Iterator[Output]:
    """The commands that read the sweep ``source``, and the file of ``folder`` for what each prints."""
    yield ("results", source, "--vector-norms"), folder / "results.csv"
    for table in TABLES[name]:
        for form, ending in FORMATS.items():
            yield ("table", source, table, "--format", form), folder / f"{table}.{ending}"
    if name == "theory":
        yield ("theory", source), folder / "theory.txt"
    yield ("figures", source, "-o", str(folder / "figures"), "--format", pictures), None


def _scalevec(*arguments: str, to: Path | None = None) -> int:
    """Run ``scalevec``; what it prints goes into the file ``to`` once it has succeeded."""
    command = [str(Path(sysconfig.get_path("scripts")) / "scalevec"), *arguments]
    if to is None:
        return subprocess.run(command, cwd=CHECKOUT).returncode
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE)
    if done.returncode == 0:
        to.write_bytes(done.stdout)
    return done.returncode


def cut(fields: Mapping[str, Any]) -> Fields:
    """A sweep that goes the same way in seconds: two arms, two seeds, a token for each parameter.

    The learning rate is tuned only at several rungs of one optimizer; a law needs three rungs. Nothing is
    predicted of it.
    """
    small = dict(fields)
    small["name"] = fields["name"].replace("small", "smoke")
    reference = fields["compare"]["reference"]
    kept = (reference, next(arm for arm in reversed(fields["arms"]) if arm != reference))
    small["arms"] = {arm: fields["arms"][arm] for arm in kept}
    is_curve = len(fields["tokens_per_parameter"]) > 1
    small["ladder"] = fields["ladder"][: 3 if is_curve else 1]
    small["tokens_per_parameter"] = [1, 2] if is_curve else [1]
    small["seeds"] = fields["seeds"][:2]
    small["optimizers"] = list(fields.get("optimizers", ["adamw"]))[:4]
    grid = enumerate(fields.get("grid", {}).items())
    small["grid"] = {name: values[: 1 if number else 2] for number, (name, values) in grid}
    small["compare"] = {name: value for name, value in fields["compare"].items() if name != "predict"}
    if packages := fields["corpus"].get("packages"):
        small["corpus"] = {**fields["corpus"], "packages": packages[:1]}
    tune = small.pop("tune", None)
    if tune and len(tune["rungs"]) > 1 and len(small["optimizers"]) == 1:
        rates = _first_two(tune["learning_rate"])
        small["tune"] = {**tune, "learning_rate": rates, "rungs": small["ladder"], "extend": 0}
    if "warmup_tokens" in fields["trial"]:
        small["trial"] = {**fields["trial"], "warmup_tokens": 4096}
    small.pop("exclude", None)  # its rules name what is cut away here
    return {name: value for name, value in small.items() if value != {}}


def _first_two(values: Sequence[Any]) -> list[Any]:
    return list(values[:2])


if __name__ == "__main__":
    sys.exit(main())
