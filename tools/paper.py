"""The small siblings of the paper's experiments, from training to tables and figures.

    python tools/paper.py small [NAME ...]    whole, kept in benchmarks/reference/small
    python tools/paper.py smoke [NAME ...]    a cut of each, to see that all of it works, in runs/smoke

Each NAME is a file of ``sweeps/small``; of the whole ones decay and trend are run only by name. What is
trained already is not trained again: stop it and go on. Sweeps go rung by rung, first its tuning, then its
comparison, and what is finished of these stages is kept too: another machine goes on from there. The arms of
a seed are compared on one machine, so they are kept together. Only theory and overhead, which
take minutes and record more than is kept of a trial, are trained in one go.

Each whole sweep has a runs directory of its own, RUNS/small/NAME: a trial that two of them share was perhaps
trained on two kinds of processor, and the arms of a seed are compared on one.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from finished_trials import restore_finished, write_finished

from scalevec import sweeps
from scalevec.orchestrator.sources.measured import run_statistics, training_curves
from scalevec.orchestrator.sources.sources import open_source
from scalevec.orchestrator.sweep.sweep_run import COMPARISON, TUNING
from scalevec.results.files import write_atomic
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder

CHECKOUT = Path(__file__).resolve().parents[1]
SMALL = CHECKOUT / "sweeps" / "small"
KEPT = CHECKOUT / "benchmarks" / "reference" / "small"
RUNS = Path(os.environ.get("SCALEVEC_RUNS_DIR", CHECKOUT / "runs"))
SMOKE = CHECKOUT / "runs" / "smoke"
FORMATS = {"markdown": "md", "latex": "tex", "csv": "csv"}
TABLES: dict[str, tuple[str, ...]] = {
    "removal": ("comparison",),
    "removal-tuned": ("comparison",),
    "steps": ("ablation", "factorial"),
    "attribution": ("comparison",),
    "main": ("comparison",),
    "mixture": ("comparison",),
    "optimizers": ("comparison",),
    "scaling": ("scaling",),
    "overhead": ("overhead",),
    "theory": (),
    "decay": ("comparison",),
    "trend": ("comparison",),
}
"""The tables of each small sweep."""
LONG = ("decay", "trend")
"""Sweeps of hours, which are run when they are named: ``make paper-decay``, ``make paper-trend``."""

AT_ONCE = ("overhead", "theory")
"""Sweeps that do not go rung by rung."""

Fields = dict[str, Any]
Output = tuple[tuple[str, ...], Path | None]


def main() -> int:
    """Run what is asked for; returns the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("size", choices=("small", "smoke"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TABLES))
    parser.add_argument("--until", metavar="RUNG", help="the last rung that is run now")
    parser.add_argument("--jobs", default="0", help="trials at a time; 0: as many as the cores allow")
    asked = parser.parse_args()
    if unknown := set(asked.names) - TABLES.keys():
        parser.error(f"no small sweep is called {', '.join(sorted(unknown))}; there are: {', '.join(TABLES)}")
    if asked.until and (asked.size != "small" or not asked.names or set(asked.names) & set(AT_ONCE)):
        parser.error(f"--until is for small sweeps that are named, but not {' and '.join(AT_ONCE)}")
    make = partial(_small, until=asked.until) if asked.size == "small" else _smoke
    make = partial(make, jobs=asked.jobs)
    left_out = LONG if asked.size == "small" else ()
    for name in asked.names or (name for name in TABLES if name not in left_out):
        began = time.monotonic()
        code = make(name)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        if code:
            return code
    return 0


def _small(name: str, jobs: str, until: str | None = None) -> int:
    path, kept = SMALL / f"{name}.yaml", KEPT / name
    if name not in AT_ONCE and (code := rung_by_rung(path, kept, jobs, until)):
        return code
    if not until and (code := _run(path, name, jobs)):
        return code
    return _write_outputs(path, name, kept, "svg,pdf,png")


def rung_by_rung(path: Path, kept: Path, jobs: str, until: str | None = None) -> int:
    """Run the sweep at ``path`` from stage to stage of its rungs, from what is in ``kept`` on."""
    sweep = sweeps.load(path)
    rungs = [rung.name for rung in sweep.ladder]
    if until and until not in rungs:
        print(f"{path.name} has no rung {until!r}; there are: {', '.join(rungs)}", file=sys.stderr)
        return 2
    folder = SweepFolder.of(runs_of(path), sweep.name)
    restore(kept, folder)
    asked = rungs[: rungs.index(until) + 1 if until else None]
    for rung, stage in product(asked, (TUNING, COMPARISON)):
        where = f"rung == {rung!r} and stage == {stage!r}"
        code = _scalevec(path, "run", "--jobs", jobs, "--where", where)
        keep(rung, folder, kept)
        if code:
            return code
    return 0


def runs_of(path: Path) -> Path:
    """The runs directory of the sweep at ``path``."""
    return RUNS / "small" / path.stem if path.parent == SMALL else RUNS


def restore(kept: Path, folder: SweepFolder) -> None:
    """Make what ``kept`` holds of finished rungs, and of predictions, part of the sweep in ``folder``."""
    for path in sorted(kept.glob("trials/*.jsonl.xz")):
        if n_trials := restore_finished(path, folder.path.parents[1]):
            print(f"{n_trials} trials of {kept.name} are there already: {path.name}", file=sys.stderr)
    _copy_missing(kept / folder.predictions_path.name, folder.predictions_path)


def keep(rung: str, folder: SweepFolder, kept: Path) -> None:
    """Keep the finished trials of ``rung``, and the predictions of the sweep.

    A seed that is compared is kept once all arms have it, in its setting.
    """
    members = [member for member in folder.members() or [] if member["rung"] == rung]
    trials = {
        member["trial_id"]: RunDirectory.of(folder.path.parents[1], member["trial_id"]) for member in members
    }
    done = {name for name, trial in trials.items() if trial.result() is not None}
    unfinished = {_cell(member) for member in members if member["trial_id"] not in done}
    finished = {
        member["trial_id"]: trials[member["trial_id"]]
        for member in members
        if member["trial_id"] in done and (member["stage"] == TUNING or _cell(member) not in unfinished)
    }
    if finished:
        write_finished(kept / "trials" / f"{rung}.jsonl.xz", list(finished.values()))
    _copy_missing(folder.predictions_path, kept / folder.predictions_path.name)


def _cell(member: Mapping[str, Any]) -> tuple[str, int, str]:
    return member["stage"], member["seed"], str(member["setting"])


def _copy_missing(source: Path, target: Path) -> None:
    """Copy the files of one folder that the other has not."""
    for path in sorted(source.glob("*.json")):
        target.mkdir(parents=True, exist_ok=True)
        if not (target / path.name).exists():
            write_atomic(target / path.name, path.read_bytes())


def _smoke(name: str, jobs: str) -> int:
    fields = cut(yaml.safe_load((SMALL / f"{name}.yaml").read_text(encoding="utf-8")))
    SMOKE.mkdir(parents=True, exist_ok=True)
    path = SMOKE / f"{name}.yaml"
    path.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
    return _run(path, name, jobs) or _write_outputs(path, name, SMOKE / name, "svg", ("markdown",))


def _run(path: Path, name: str, jobs: str) -> int:
    """Train what is missing of the sweep at ``path``; where time is measured, trials run one by one."""
    return _scalevec(path, "run", "--jobs", "1" if name == "overhead" else jobs)


def _write_outputs(
    path: Path, name: str, folder: Path, pictures: str, forms: Sequence[str] = tuple(FORMATS)
) -> int:
    """Write the results of the sweep at ``path``, as far as it is trained, and its tables and figures."""
    folder.mkdir(parents=True, exist_ok=True)
    choices = SweepFolder.of(runs_of(path), sweeps.load(path).name).tuning_path
    if choices.is_file():
        shutil.copyfile(choices, folder / choices.name)
    keep_measured(str(path), runs_of(path), folder)
    shutil.rmtree(folder / "figures", ignore_errors=True)  # an earlier design may have had others
    outputs = _outputs(name, folder, pictures, forms)
    if code := next((code for arguments, to in outputs if (code := _scalevec(path, *arguments, to=to))), 0):
        return code
    for table in folder.glob("*.csv"):
        if table.stem in TABLES[name]:
            write_atomic(table, with_five_digits(table.read_text(encoding="utf-8")).encode())
    return 0


def with_five_digits(text: str) -> str:
    """Return ``text`` with five significant digits: the sixth of bootstrap intervals differs by processor."""
    return re.sub(r"-?\d+\.\d{5,}(?:e[-+]\d+)?", lambda number: f"{float(number[0]):.5g}", text)


def keep_measured(source: str, runs: Path, folder: Path) -> None:
    """Write what the runs of a sweep recorded along the way to ``folder``, as far as figures show it."""
    sweep = open_source(source, runs)
    for name, table in (
        ("curves", training_curves(sweep, runs)),
        ("statistics", run_statistics(sweep, runs)),
    ):
        if len(table):
            points = _thinned(table) if name == "curves" else table
            kept = points.drop(columns=["arm", "rung", "seed"], errors="ignore")
            kept.to_csv(folder / f"{name}.csv.xz", index=False, float_format="%.5g")


def measured(folder: Path, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What :func:`keep_measured` wrote to ``folder``, with the arm, rung and seed of each of ``rows``."""
    trials = rows[["trial_id", "arm", "rung", "seed"]]
    paths = {name: folder / f"{name}.csv.xz" for name in ("curves", "statistics")}
    return {
        name: pd.read_csv(path).merge(trials, on="trial_id") for name, path in paths.items() if path.is_file()
    }


def _thinned(curves: pd.DataFrame) -> pd.DataFrame:
    """Means of the loss over each hundredth of a run."""
    ordered = curves.sort_values(["trial_id", "tokens"], kind="stable")
    of_run = ordered.groupby("trial_id")["tokens"]
    part = (of_run.cumcount() * 100 // of_run.transform("size")).rename("part")
    means = ordered.groupby(["trial_id", part]).agg(tokens=("tokens", "last"), loss=("loss", "mean"))
    return means.reset_index("part", drop=True).reset_index()


def _outputs(name: str, folder: Path, pictures: str, forms: Sequence[str]) -> Iterator[Output]:
    """The commands that read the sweep ``name``, and the file of ``folder`` for what each prints."""
    yield ("results",), folder / "results.csv"
    # The two arms of a cut are no factorial.
    tables = [table for table in TABLES[name] if table != "factorial" or SMOKE not in folder.parents]
    for table in tables:
        for form in forms:
            yield ("table", table, "--format", form), folder / f"{table}.{FORMATS[form]}"
    if name == "theory":
        yield ("theory",), folder / "theory.txt"
        yield ("theory", "--json"), folder / "theory.json"
    yield ("figures", "-o", str(folder / "figures"), "--format", pictures), None


def _scalevec(path: Path, command: str, *arguments: str, to: Path | None = None) -> int:
    """Run a command on the sweep at ``path``; what it prints goes into ``to`` once it has succeeded."""
    scalevec = str(Path(sysconfig.get_path("scripts")) / "scalevec")
    line = [scalevec, command, str(path), *arguments, "--runs", str(runs_of(path))]
    if to is None:
        return subprocess.run(line, cwd=CHECKOUT).returncode
    done = subprocess.run(line, cwd=CHECKOUT, stdout=subprocess.PIPE)
    if done.returncode == 0:
        to.write_bytes(done.stdout)
    return done.returncode


def cut(fields: Mapping[str, Any]) -> Fields:
    """A sweep that goes the same way in seconds: two arms, two seeds, a token for each parameter.

    The learning rate is tuned only at several rungs of one optimizer; a law needs three rungs, of which the
    last has its rate carried. Nothing is predicted of it.
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
        tuned = {name: values[:2] for name, values in tune.items() if isinstance(values, list)}
        where = {"rungs": small["ladder"][:2], "seeds": tune["seeds"][:1]}
        small["tune"] = {**tune, **tuned, **where, "extend": 0}
    # Of a trial of so few steps the evaluation of whole splits would be two thirds.
    small["trial"] = {**fields["trial"], "evaluation_tokens": 16_384}
    if "warmup_tokens" in fields["trial"]:
        small["trial"]["warmup_tokens"] = 4096
    small.pop("exclude", None)  # its rules name what is cut away here
    return {name: value for name, value in small.items() if value != {}}


if __name__ == "__main__":
    sys.exit(main())
