"""``scalevec demo``: the quickstart sweep on this machine, its verdict and its report."""

from pathlib import Path

from scalevec.orchestrator.cli.options import RUNS, Jobs, Output, Placement, Runs
from scalevec.orchestrator.cli.output import command
from scalevec.orchestrator.commands.analyse.compare import compare
from scalevec.orchestrator.commands.analyse.report import report
from scalevec.orchestrator.commands.run.run import run_sweep
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.progress import note

QUICKSTART = "quickstart"


def demo(runs_dir: Runs = RUNS, jobs: Jobs = 0, output: Output = None) -> Exit:
    """Run the quickstart sweep on this machine, then write its report."""
    from scalevec import sweeps

    again = command("demo", None, runs_dir, jobs=jobs, output=output)
    path = str(sweeps.shipped(QUICKSTART))
    code = run_sweep(path, runs_dir, Placement("local", jobs=jobs), again=again).write()
    if code is Exit.DONE:
        compare(QUICKSTART, runs_dir).write()
        report(QUICKSTART, runs_dir, output=output).write()
        if name := kept_model(QUICKSTART, runs_dir):
            asked = command("generate", name, runs_dir, prompt="def main(")
            note(f"to see what the best model of the largest size writes: {asked}")
    return code


def kept_model(sweep: str, runs_dir: Path) -> str | None:
    """Return the trial of least loss, of the largest size of ``sweep`` of which weights were kept."""
    from scalevec.orchestrator.sources.runs import Runs as RunsFolder

    of_sweep = RunsFolder(runs_dir).sweep(sweep)
    kept = [trial.trial_id for trial in of_sweep.trials() if any(trial.checkpoints_path.glob("*"))]
    rows = of_sweep.results().sort_values(["n_params", "loss"], ascending=[False, True])
    names: list[str] = rows.loc[rows["trial_id"].isin(kept) & rows["loss"].notna(), "trial_id"].tolist()
    return names[0][:12] if names else None
