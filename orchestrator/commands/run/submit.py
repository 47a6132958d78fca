"""``scalevec submit``: a small job in the cluster that runs the sweep's stages."""

from scalevec.orchestrator.attempts.jobs import tell_unreached
from scalevec.orchestrator.cli.options import RUNS, Executor, Placement, ProfileName, Runs, Sweep, Trusted
from scalevec.orchestrator.cli.output import Result, command
from scalevec.orchestrator.commands.run.machines import opened_executor, prepared_run, send_along, site_of
from scalevec.orchestrator.commands.run.run import writers_of_checkpoints
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.sources.sources import code_folders, load_sweep, own_code
from scalevec.orchestrator.sweep import controller
from scalevec.orchestrator.trust import Trust, require_trust, writers_agreed_to


def submit(
    source: Sweep,
    runs_dir: Runs = RUNS,
    executor: Executor = None,
    profile: ProfileName = None,
    trust: Trusted = False,
) -> Result:
    """Submit a sweep to a cluster and exit (idempotent).

    Nothing is sent before all is valid.
    """
    sweep = load_sweep(source, runs_dir)
    name, site = site_of(sweep, runs_dir, Placement(executor, profile), Trust(trust))
    if not EXECUTORS[name].keeps_jobs:
        words = command("run", source, runs_dir, executor=name, profile=profile)
        how = f"; on a Ray cluster: ray job submit -- {words}" if name == "ray" else ""
        raise InvalidInputError(
            f"executor {name!r} keeps no job of its own; use `scalevec run`, or `--executor slurm`{how}"
        )
    agreed = require_trust(source, own_code(sweep), Trust(trust), code_folders(sweep))
    send_along(sweep, site)
    with opened_executor(name, controller.site_of_controller(site)) as cluster:
        if name == "slurm":
            from scalevec.orchestrator.executors.slurm.partitions import refuse_unknown_partitions

            refuse_unknown_partitions(site.profile)
        run = prepared_run(name, sweep, site, Progress())
        run.ask_again()
        tell_unreached([controller.directory_of(runs_dir, sweep.name)])
        number = already = controller.submitted(cluster, site)
        if not already:
            trusted = (agreed, *writers_agreed_to(source, writers_of_checkpoints(run), Trust(trust)))
            run.write_file()
            run.write_members(run.members())
            number = controller.submit(cluster, site, source, profile, executor=name, trusted=trusted)
    suggested = [command(verb, source, runs_dir) for verb in ("status", "report", "cancel")]
    record = {"sweep": sweep.name, "job": number, "already_queued": bool(already), "next": suggested}
    of_slurm = str(number).partition("/")[0]
    text = f"{sweep.name}: controller {'already queued' if already else 'submitted'}, job {of_slurm}"
    return Result(record, f"{text}\nNext: {'; '.join(suggested)}")
