"""How plans and schedules grow: the plan of 100,000 trials, and 10,000 simulated trials.

``python benchmarks/scale_plan.py [--plan TRIALS] [--simulate TRIALS] [--jobs SLOTS]`` measures each command
in a process of its own, checks what came out, and prints one JSON object.
Where others use the machine, the CPU seconds say more than the wall seconds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

SCALEVEC = (sys.executable, "-P", "-c", "from scalevec.orchestrator.cli.main import main; main()")
CHECKOUT = Path(__file__).resolve().parents[1]

PLAN = """\
name: scale-plan
corpus: {{source: text, files: [text.txt], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 256}}
ladder: [tiny-25k, tiny-55k, tiny-83k, tiny-150k, tiny-200k]
tokens_per_parameter: [10, 20]
arms:
  baseline: {{scale_vectors: baseline}}
  none: {{scale_vectors: none}}
  hg: {{scale_vectors: hg}}
  unified: {{scale_vectors: unified}}
grid:
  weight_decay: [0.05, 0.1, 0.2, 0.3, 0.4]
  beta2: [0.9, 0.95, 0.98, 0.99, 0.995]
  learning_rate: [{rates}]
seeds: [{seeds}]
"""
EXCLUDE = "exclude: [{rung: tiny-200k, seed: 0}]\n"
TEXT = "".join(f"Line {i} of a text that is long enough.\n" for i in range(5000))
RATES = ", ".join(str((1 + i) / 1000) for i in range(20))
PLAN_CELLS = 5 * 2 * 4 * 5 * 5 * 20

SIMULATION = """\
name: scale-simulate
corpus: {{tokenizer: {{bpe: 32000}}, sequence_length: 1024}}
trial: {{batch_tokens: 65536, learning_rate: 0.002}}
ladder:
  - {{name: 3m, width: 192, layers: 6}}
  - {{name: 10m, width: 320, layers: 8}}
  - {{name: 30m, width: 512, layers: 10}}
  - {{name: 90m, width: 768, layers: 12}}
  - {{name: 200m, width: 1024, layers: 16}}
arms:
  baseline: {{scale_vectors: baseline}}
  unified: {{scale_vectors: unified}}
seeds: [{seeds}]
simulate:
  arms: {{unified: {{gain: 1.05}}}}
"""
SIMULATION_CELLS = 5 * 2


def measured(arguments: list[str], folder: Path) -> dict[str, Any]:
    """Wall and CPU seconds and peak resident memory of one command, its output thrown away."""
    environment = os.environ | {
        "PYTHONPATH": str(CHECKOUT / "src"),
        "SCALEVEC_CACHE_DIR": str(folder / "cache"),
    }
    began = time.perf_counter()
    with (folder / "errors.txt").open("w") as errors:
        process = subprocess.Popen(
            [*SCALEVEC, *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{arguments}: status {status}\n{(folder / 'errors.txt').read_text()[-2000:]}")
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": round(usage.ru_maxrss / 1024),
    }


def seeds(n_trials: int, cells: int) -> str:
    """As many seeds as ``cells`` cells need for ``n_trials`` trials."""
    return ", ".join(map(str, range(-(-n_trials // cells))))


def write_plan(path: Path, n_trials: int, exclude: str = "") -> None:
    """The file of a sweep of as many trials (rounded up to whole seeds), and the text that it trains on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "text.txt").write_text(TEXT)
    path.write_text(PLAN.format(seeds=seeds(n_trials, PLAN_CELLS), rates=RATES) + exclude)


def plan(n_trials: int, folder: Path) -> dict[str, Any]:
    """The plan of ``n_trials`` trials, as JSON and as a table; the corpus is prepared before."""
    write_plan(folder / "plan.yaml", n_trials, EXCLUDE)
    measured(["corpus", "prepare", "plan.yaml"], folder)
    return {
        "json": measured(["plan", "plan.yaml", "--json"], folder),
        "table": measured(["plan", "plan.yaml"], folder),
    }


def simulate(n_trials: int, jobs: int, folder: Path) -> dict[str, Any]:
    """A simulated sweep of ``n_trials`` trials; every one must have one result and one end."""
    (folder / "simulate.yaml").write_text(SIMULATION.format(seeds=seeds(n_trials, SIMULATION_CELLS)))
    arguments = ["run", "simulate.yaml", "--executor", "simulate", "--jobs", str(jobs)]
    return measured(arguments, folder) | outcome(folder / "runs" / "simulated" / "trials")


def outcome(trials: Path) -> dict[str, Any]:
    """What the run directories say: trials, results, and how often trials ended."""
    ends: Counter[int] = Counter()
    results = n_trials = 0
    for directory in trials.glob("*/*"):
        n_trials += 1
        results += (directory / "result.json").exists()
        events = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
        ends[sum(event["state"] in ("completed", "diverged") for event in events)] += 1
    return {"trials": n_trials, "results": results, "ends_a_trial": dict(ends)}


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=int, default=100_000, metavar="TRIALS")
    parser.add_argument("--simulate", type=int, default=10_000, metavar="TRIALS")
    parser.add_argument("--jobs", type=int, default=64, help="simulated slots")
    values = parser.parse_args()
    record: dict[str, Any] = {"cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as folder:
        if values.plan:
            record["plan"] = plan(values.plan, Path(folder))
        if values.simulate:
            record["simulate"] = simulate(values.simulate, values.jobs, Path(folder))
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
