"""Whether the seeds of a trainer of somebody else's change anything at all."""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalevec.orchestrator.sources.sources import with_index

Record = Mapping[str, Any]


def seeds_without_effect(
    members: Mapping[str, Record], states: Mapping[str, str], runs_dir: Path
) -> str | None:
    """Return what ``compare`` will say of finished seeds that have one loss to the last digit, else None.

    ``members`` are those of members.json, by trial id; ``states`` are of the same trials.
    """
    cells: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for trial_id, member in members.items():
        if member.get("fields") and member["stage"] == "comparison" and states[trial_id] == "completed":
            fields = json.dumps(member["fields"], sort_keys=True)
            cells[member["arm"], member["rung"], str(member.get("n_tokens")), fields].append(trial_id)
    cell_of = {trial_id: cell for cell, ids in cells.items() if len(ids) > 1 for trial_id in ids}
    if not cell_of:
        return None
    from scalevec.analysis.statistics.noise import copied_seeds

    losses: dict[str, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
    for row in with_index(runs_dir, lambda index: index.rows(runs_dir, cell_of)):
        if row["loss"] is not None:
            losses[members[row["trial_id"]]["arm"]].append((cell_of[row["trial_id"]], row["loss"]))
    return copied_seeds(losses)
