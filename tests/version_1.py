"""Turns runs of today into those of identity version 1: neither streams nor blocks, other ids."""

import json
import shutil
from pathlib import Path
from typing import Any

from scalevec.model.identity import digest
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.results.sweep_folder import SweepFolder, sweep_names

_LATER_FIELDS = ("stream", "evaluation_tokens")
_LATER_RESULTS = ("loss_blocks", "block_tokens")


def make_version_1(runs_dir: Path) -> None:
    """Rewrite all trials and sweeps below ``runs_dir`` as an earlier scalevec would have kept them."""
    names = {
        name: _rewritten(RunDirectory.of(runs_dir, name), runs_dir) for name in list(trial_ids(runs_dir))
    }
    for sweep in sweep_names(runs_dir):
        folder = SweepFolder.of(runs_dir, sweep)
        folder.write_members([_member_1(member, names) for member in folder.members() or []])


def _rewritten(directory: RunDirectory, runs_dir: Path) -> str:
    record = directory.trial()
    fields = {name: value for name, value in record["semantic"].items() if name not in _LATER_FIELDS}
    fields["identity_version"] = 1
    name = digest(fields)
    earlier = RunDirectory.of(runs_dir, name)
    earlier.path.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(directory.path, earlier.path)
    earlier.trial_path.write_text(json.dumps({**record, "trial_id": name, "semantic": fields}))
    if earlier.result_path.exists():
        result = json.loads(earlier.result_path.read_bytes())
        kept = {key: value for key, value in result.items() if key not in _LATER_RESULTS}
        earlier.result_path.write_text(json.dumps(kept))
    return name


def _member_1(member: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    later = ("stream", "identity_version")
    kept = {name: value for name, value in member.items() if name not in later}
    return {**kept, "trial_id": names[member["trial_id"]]}
