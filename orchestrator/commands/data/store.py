"""``scalevec store``: upkeep of the index over the run directories."""

from scalevec.orchestrator.cli.options import RUNS, Runs
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.progress import counted
from scalevec.orchestrator.sources.sources import with_index


def rebuild(runs_dir: Runs = RUNS) -> Result:
    """Rebuild the index from the run directories."""
    report = with_index(runs_dir, lambda index: index.rebuild(runs_dir))
    trials = report.added + report.updated
    problems = [f"left out {name[:12]}: {problem}" for name, problem in report.problems.items()]
    text = "\n".join([f"index rebuilt: {counted(trials, 'trial')}", *problems])
    return Result({"trials": trials, "problems": report.problems}, text)
