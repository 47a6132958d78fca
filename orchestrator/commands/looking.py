"""Commands that look: plan, status, explain, schema, and the upkeep of the index."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Exit, Refused

if TYPE_CHECKING:
    pass

SHORTEST_PREFIX = 4
WATCH_S = 2.0


def plan(path: str, runs_dir: Path, jobs: int, *, every_trial: bool, as_json: bool) -> Exit:
    """Every trial of a sweep with what it will cost, and what exists already."""
    import sweeps
    from orchestrator.planning import planned
    from orchestrator.progress import Progress
    from orchestrator.sweep_run import SweepRun

    run = SweepRun(sweeps.load(path), runs_dir, Progress(jobs))
    for warning in sweeps.identical_arms(run.cells):
        run.progress.message(f"warning: {warning}")
    trials = planned(run)
    if as_json:
        print(json.dumps(trials, indent=1))
        return Exit.DONE
    from orchestrator.planning import show

    show(run, trials, jobs, every_trial=every_trial)
    return Exit.DONE


def status(source: str | None, runs_dir: Path, *, watch: bool, as_json: bool) -> Exit:
    """How many trials of each sweep are in which state, and how far the running ones are."""
    from results.sweep_folder import sweep_names

    names = [source] if source else sweep_names(runs_dir)
    if as_json:
        print(json.dumps([_status(name, runs_dir) for name in names], indent=1))
        return Exit.DONE
    if not names:
        print(f"no sweep has been run in {runs_dir}")
    if not watch:
        for name in names:
            print(_status_text(_status(name, runs_dir)))
        return Exit.DONE
    return _watch(names, runs_dir)


def _watch(names: list[str], runs_dir: Path) -> Exit:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        while True:
            found = [_status(name, runs_dir) for name in names]
            live.update(Text("\n".join(map(_status_text, found))), refresh=True)
            if not any(one["running"] or one["states"].get("queued") for one in found):
                return Exit.DONE
            time.sleep(WATCH_S)


def _status(source: str, runs_dir: Path) -> dict[str, Any]:
    from orchestrator.sources import sweep_folder
    from results.run_directory import RunDirectory

    folder = sweep_folder(source, runs_dir)
    members = {member["trial_id"]: member for member in folder.members() or []}
    states = {name: RunDirectory.of(runs_dir, name).state() for name in members}
    running = [
        {
            "trial_id": name,
            "arm": members[name]["arm"],
            "rung": members[name]["rung"],
            **_reached(runs_dir, name),
        }
        for name, state in states.items()
        if state.state == "running"
    ]
    counts = Counter(state.state for state in states.values())
    return {"sweep": folder.name, "trials": len(members), "states": dict(counts), "running": running}


def _reached(runs_dir: Path, name: str) -> dict[str, Any]:
    """How far a running trial is, and whether its worker lives."""
    from model.identity import trial_from_fields
    from results.claims import ClaimObserver
    from results.run_directory import RunDirectory

    directory = RunDirectory.of(runs_dir, name)
    rows = directory.metrics()
    step = rows[-1]["step"] if rows else 0
    steps = trial_from_fields(directory.trial()["semantic"]).steps
    return {"step": step, "steps": steps, "worker_alive": ClaimObserver().is_alive(directory)}


def _status_text(found: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in sorted(found["states"].items()))
    lines = [f"{found['sweep']}: {found['trials']} trials named so far: {counts or 'none'}"]
    for one in found["running"]:
        gone = "" if one["worker_alive"] else " (its worker is gone; run the sweep again)"
        lines.append(
            f"  {one['arm']} {one['rung']} {one['trial_id'][:12]}: step {one['step']} of {one['steps']}{gone}"
        )
    return "\n".join(lines)


def explain(prefix: str, runs_dir: Path, *, as_json: bool) -> Exit:
    """Why a trial ran, what sets it apart from its nearest neighbour, and what happened to it."""
    from model.identity import differences
    from results.run_directory import RunDirectory

    name = _whole_id(prefix, runs_dir)
    directory = RunDirectory.of(runs_dir, name)
    trial = directory.trial()
    neighbour, fields = _nearest(name, trial["semantic"], runs_dir, differences)
    found = {
        **trial,
        "directory": str(directory.path),
        "members_of": list(_memberships(name, runs_dir)),
        "nearest": {"trial_id": neighbour, "differences": fields},
        "state": directory.state().state,
        "events": directory.events(),
        "environments": directory.environments(),
        "result": directory.result(),
    }
    print(json.dumps(found, indent=1) if as_json else _explanation(found))
    return Exit.DONE


def _whole_id(prefix: str, runs_dir: Path) -> str:
    from results.run_directory import trial_ids

    found = [name for name in trial_ids(runs_dir) if name.startswith(prefix)]
    if len(prefix) < SHORTEST_PREFIX or len(found) != 1:
        raise Refused(
            f"trial {prefix!r}: {len(found)} trials in {runs_dir} begin so; allowed: at least "
            f"{SHORTEST_PREFIX} digits of an id, as many as make it one trial"
        )
    return found[0]


def _nearest(
    name: str, semantic: dict[str, Any], runs_dir: Path, differences: Any
) -> tuple[str | None, dict[str, Any]]:
    from results.run_directory import RunDirectory, trial_ids

    best: tuple[str | None, dict[str, Any]] = (None, {})
    for other in trial_ids(runs_dir):
        if other != name:
            found = differences(semantic, RunDirectory.of(runs_dir, other).trial()["semantic"])
            if best[0] is None or len(found) < len(best[1]):
                best = (other, found)
    return best


def _memberships(name: str, runs_dir: Path) -> Iterator[dict[str, Any]]:
    from results.sweep_folder import SweepFolder, sweep_names

    for sweep in sweep_names(runs_dir):
        for member in SweepFolder.of(runs_dir, sweep).members() or []:
            if member["trial_id"] == name:
                fields = ("arm", "stage", "rung", "seed", "lr_status")
                yield {"sweep": sweep, **{field: member[field] for field in fields}}


def _explanation(found: dict[str, Any]) -> str:
    result = found["result"] or {}
    lines = [f"trial {found['trial_id']}", f"  in {found['directory']}", f"  {found['state']}"]
    if result.get("loss") is not None:
        lines[-1] += f", test loss {result['loss']:.6f}, resumed {result['resumes']} times"
    lines += [
        "  ran for sweep {sweep}: {stage} of arm {arm} at {rung}, seed {seed}".format_map(one)
        for one in found["members_of"]
    ]
    if found["nearest"]["trial_id"]:
        lines.append(f"nearest trial {found['nearest']['trial_id'][:12]}, which differs in")
        for field, (own, other) in found["nearest"]["differences"].items():
            lines.append(f"  {field}: {own} here, {other} there")
    lines.append("what happened")
    for event in found["events"]:
        details = [str(event[key]) for key in ("cause", "note", "error", "reason") if event.get(key)]
        lines.append("  " + " ".join([event["time"], event["host"], event["state"], *details]))
    return "\n".join(lines)


def schema() -> Exit:
    """The JSON Schema of the sweep file."""
    import sweeps

    print(json.dumps(sweeps.json_schema(), indent=1))
    return Exit.DONE


def rebuild_store(runs_dir: Path) -> Exit:
    """The index, made anew from the run directories."""
    from results.index import ResultsIndex, default_url

    with ResultsIndex(default_url(runs_dir)) as index:
        report = index.rebuild(runs_dir)
    print(f"index rebuilt: {report.added + report.updated} trials")
    for name, problem in report.problems.items():
        print(f"left out {name[:12]}: {problem}")
    return Exit.DONE
