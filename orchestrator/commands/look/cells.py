"""What a look at a sweep finds: states and mean losses of cells, why trials wait or failed, their cost."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from scalevec.orchestrator.attempts.retry_policy import FAULTS, why_failed
from scalevec.orchestrator.sources.readable import readable
from scalevec.orchestrator.sources.records import tuning_choices
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder

Record = dict[str, Any]
MOST_FAILED = 20
"""Failed trials whose records are read for the cause."""
_WORDS = {"tokens_per_parameter": "D/N", "tokens_budget": "D", "flops_budget": "C"}
_BUDGETS = ("tokens_budget", "flops_budget")
_OPEN_RATES = "for the rates that tuning chooses"


@dataclass(frozen=True)
class SweepLook:
    """What was read of a sweep: its trials, those ``to_come`` without names yet, states and values by id."""

    runs_dir: Path
    folder: SweepFolder
    entries: Sequence[Record]
    to_come: Sequence[Record]
    states: Mapping[str, str]
    values: Mapping[str, Record]

    @cached_property
    def members(self) -> dict[str, Record]:
        """The trials by id; arms that are identical by construction share theirs."""
        return {entry["trial_id"]: entry for entry in self.entries}

    @cached_property
    def varied(self) -> frozenset[str]:
        """The names of the settings that tell cells of one rung apart."""
        seen: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for entry in (*self.entries, *self.to_come):
            for name, value in _setting(entry).items():
                seen[entry["rung"], name].add(value)
        return frozenset(name for (_, name), values in seen.items() if len(values) > 1)

    def state(self, entry: Record) -> str:
        """The state of the trial of an entry; those that have no names wait."""
        return self.states.get(entry["trial_id"], "pending")

    def loss(self, entry: Record) -> float | None:
        """The test loss of a completed trial, nats/token."""
        is_completed = self.state(entry) == "completed"
        return self.values.get(entry["trial_id"], {}).get("loss") if is_completed else None

    def took(self) -> dict[str, float]:
        """Seconds of training and evaluation by trial."""
        return {
            name: row["wall_s"] + (row["evaluation_s"] or 0.0)
            for name, row in self.values.items()
            if row["wall_s"] and name in self.members
        }


def _setting(entry: Record) -> dict[str, str]:
    """The settings of an entry as they are shown."""
    setting = {name: entry.get(name) for name in ("optimizer", "schedule", "tokens_per_parameter")}
    setting |= entry.get("setting", {})
    if any(name in setting for name in _BUDGETS):
        del setting["tokens_per_parameter"]
    return {
        name: f"{value:.3g}" if isinstance(value, float | int) and not isinstance(value, bool) else str(value)
        for name, value in setting.items()
        if value is not None
    }


def setting_of(entry: Record, varied: frozenset[str]) -> dict[str, str]:
    """Return what tells the cell of ``entry`` from others of its rung; empty where nothing does."""
    return {_WORDS.get(name, name): value for name, value in _setting(entry).items() if name in varied}


def setting_words(setting: Mapping[str, str]) -> list[str]:
    """Return ``["wsd", "D/N 4"]`` of a setting; names stand where values do not speak for themselves."""
    return [
        value if name in ("optimizer", "schedule") else f"{name} {value}" for name, value in setting.items()
    ]


def label_of(entry: Record, varied: frozenset[str]) -> str:
    """Return what a person calls a trial: arm, rung, setting, seed, and in tuning the rate that is tried."""
    words = [entry["arm"], entry["rung"], *setting_words(setting_of(entry, varied))]
    words.append(f"seed {entry['seed']}" if entry.get("seed") is not None else "")
    if entry["stage"] == "tuning" and entry.get("learning_rate") is not None:
        words.append(f"rate {entry['learning_rate']:.3g}")
    return " ".join(filter(None, words))


def cells(look: SweepLook) -> list[Record]:
    """Return a record for each stage, rung, setting and arm, rungs by size, arms as in the sweep."""
    groups: defaultdict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for entry in (*look.entries, *look.to_come):
        setting = tuple(setting_of(entry, look.varied).items())
        groups[entry["stage"], entry.get("n_params") or 0, entry["rung"], setting, entry["arm"]].append(entry)
    arms = list(dict.fromkeys(entry["arm"] for entry in (*look.entries, *look.to_come)))
    order = sorted(groups, key=lambda key: (key[0] != "tuning", *key[1:4], arms.index(key[4])))
    return [_cell(look, key, groups[key]) for key in order]


def _cell(look: SweepLook, key: tuple[Any, ...], entries: Sequence[Record]) -> Record:
    losses = [loss for loss in map(look.loss, entries) if loss is not None]
    stage, n_params, rung, setting, arm = key
    return {
        "stage": stage,
        "rung": rung,
        "n_params": n_params or None,
        "setting": dict(setting),
        "arm": arm,
        "trials": len(entries),
        "states": dict(Counter(map(look.state, entries))),
        "loss": sum(losses) / len(losses) if losses and stage == "comparison" else None,
    }


def waiting(look: SweepLook, jobs: Mapping[str, Record], *, is_owned: bool) -> list[Record]:
    """Return for how many trials which reason holds why they wait, the commonest first."""
    reasons = Counter(
        _reason(look, name, entry, jobs.get(name), is_owned=is_owned)
        for name, entry in look.members.items()
        if look.states[name] in ("pending", "queued", "cancelling")
    )
    reasons[_OPEN_RATES] += len(look.to_come)
    return [{"reason": reason, "trials": count} for reason, count in reasons.most_common() if count]


def _reason(look: SweepLook, name: str, entry: Record, job: Record | None, *, is_owned: bool) -> str:
    state, cause = look.states[name], look.values.get(name, {}).get("cause")
    if entry.get("learning_rate") is None and not entry.get("lr_status"):
        return _OPEN_RATES
    if state == "cancelling":
        return "to end, cancelled"
    if job is not None and job["state"]:
        reason = f" ({job['reason']})" if job["reason"] else ""
        return f"in the queue: {job['state'].lower()}{reason}"
    if state == "queued":
        return "for its worker to start"
    if not is_owned:
        return "for somebody to run the sweep"
    return f"to be tried again after {cause.replace('_', ' ')}" if cause in FAULTS else "for a free slot"


def failed(look: SweepLook) -> list[Record]:
    """Return why trials failed: of each what its last error said, and why it was given up."""
    names = [name for name in look.members if look.states[name] == "failed"]
    return [_failed(look, name) for name in names[:MOST_FAILED]]


def _failed(look: SweepLook, name: str) -> Record:
    directory = RunDirectory.of(look.runs_dir, name)
    events: list[Record] = readable(directory.events, [], f"trial {name[:12]}: why it failed is unknown")
    last = events[-1] if events else {}
    return {
        "trial_id": name,
        "label": label_of(look.members[name], look.varied),
        "cause": last.get("cause"),
        "reason": last.get("reason"),
        "error": why_failed(events, directory),
        "log": str(directory.log_path),
    }


def chosen(folder: SweepFolder) -> list[Record]:
    """Return what tuning decided, one record for each arm, rung, setting and field."""
    kept = ("arm", "rung", "n_params", "setting", "field", "chosen", "status")
    choices = tuning_choices(folder) if folder.tuning_path.exists() else []
    return [{name: choice[name] for name in kept} for choice in choices]


def cost(
    left: Sequence[Record],
    finished: Sequence[Record],
    took: Mapping[str, float],
    begun: Mapping[str, float],
    plan: Mapping[str, Any] | None,
) -> Record | None:
    """Return GPU hours, or core hours where no trial has a GPU, that were spent on trials and are left.

    Args:
        left: Entries without a result.
        finished: Entries with one.
        took: Seconds of finished trials.
        begun: The share of its steps that a running trial has made.
        plan: What :func:`~scalevec.orchestrator.commands.look.time_left.against_plan` found.

    Returns:
        None where entries, of an earlier version, do not say what they need.
    """
    everyone = [*left, *finished]
    if not everyone or not all("cores" in entry for entry in everyone):
        return None
    unit = "gpus" if any(entry["gpus"] for entry in everyone) else "cores"
    spent = sum(took.get(entry["trial_id"], 0.0) * entry[unit] for entry in finished)
    pace = plan["compared_measured_s"] / plan["compared_planned_s"] if plan and plan["compared"] else 1.0
    planned = [(entry, (entry.get("planned_s") or 0.0) * pace * entry[unit]) for entry in left]
    spent += sum(seconds * begun.get(entry["trial_id"], 0.0) for entry, seconds in planned)
    rest = sum(seconds * (1 - begun.get(entry["trial_id"], 0.0)) for entry, seconds in planned)
    return {
        "unit": "GPU hours" if unit == "gpus" else "core hours",
        "spent": spent / 3600,
        "left": rest / 3600 if plan else None,
    }
