"""``scalevec demo``: the quickstart sweep on this machine, its verdict and its report."""

from scalevec import sweeps
from scalevec.orchestrator.cli.options import RUNS, Jobs, Output, Placement, Runs
from scalevec.orchestrator.cli.output import command
from scalevec.orchestrator.commands.analyse.compare import compare
from scalevec.orchestrator.commands.analyse.report import report
from scalevec.orchestrator.commands.run.run import run_sweep
from scalevec.orchestrator.errors import Exit

QUICKSTART = "quickstart"


def demo(runs_dir: Runs = RUNS, jobs: Jobs = 0, output: Output = None) -> Exit:
    """Run the quickstart sweep on this machine, then write its report."""
    again = command("demo", None, runs_dir, jobs=jobs, output=output)
    path = str(sweeps.shipped(QUICKSTART))
    code = run_sweep(path, runs_dir, Placement("local", jobs=jobs), again=again).write()
    if code is Exit.DONE:
        compare(QUICKSTART, runs_dir).write()
        report(QUICKSTART, runs_dir, output=output).write()
    return code
