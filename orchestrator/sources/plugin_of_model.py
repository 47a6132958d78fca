"""The plugin that computes the scale vectors of a trained model, loaded to read the model here."""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from scalevec.model.fields import PluginSource
from scalevec.orchestrator.errors import InvalidInputError, read_or_warn
from scalevec.orchestrator.private import private_folder
from scalevec.orchestrator.snapshots.snapshot import SNAPSHOTS
from scalevec.orchestrator.trust import Trust, require_trust
from scalevec.orchestrator.worker.plugins import require_importable
from scalevec.results.files import names_in
from scalevec.results.sweep_folder import SweepFolder
from scalevec.sweeps.plugins.locate import FOLDER, Plugin, PluginError, find
from scalevec.sweeps.plugins.registered import register

_copies: dict[str, tuple[str, TemporaryDirectory[str]]] = {}
"""What this process has loaded: the digest, and the copy that it was imported from, by top-level module."""


def load_plugin(needed: PluginSource, folder: SweepFolder, trust: Trust) -> None:
    """Import the plugin with the source that trained for the sweep in ``folder``, once a person agrees.

    Raises:
        InvalidInputError: that source is nowhere, nobody agreed, it cannot be imported, or this process has
            loaded it with another source.
    """
    plugin = _as_it_trained(needed, folder)
    require_trust(str(folder.sweep_path), plugin.files, trust, [plugin.parent])
    try:
        register(plugin)
        require_importable(plugin, _copied(plugin))
    except PluginError as problem:
        raise InvalidInputError(str(problem)) from None


def _as_it_trained(needed: PluginSource, folder: SweepFolder) -> Plugin:
    _, is_version, number = needed.source.partition("code_version ")
    code_version, shown = (int(number), needed.source) if is_version else (None, needed.source[:12])
    other = []
    for parent in _parents(folder):
        try:
            plugin = find(needed.module, parent, code_version)
        except (PluginError, OSError):
            continue
        if plugin.identity == needed:
            return plugin
        other.append(f"{plugin.parent} ({plugin.digest[:12]})")
    raise InvalidInputError(
        f"the model computes with the plugin {needed.module} as it was with the source {shown}, which "
        f"is not there any more; other content is in: {', '.join(dict.fromkeys(other)) or 'none'}. "
        "Put that version back beside the sweep file"
    )


def _parents(folder: SweepFolder) -> Iterator[Path]:
    """The sweep file's folder and what is installed, then what was sent with trials."""
    origin = read_or_warn(folder.origin, None, "the plugin is looked for where trials were sent with it")
    yield origin or folder.path
    yield from (root / FOLDER for root in _folders_in(private_folder() / SNAPSHOTS))


def _folders_in(folder: Path) -> list[Path]:
    return [folder / name for name in names_in(folder) if (folder / name).is_dir()]


def _copied(plugin: Plugin) -> Path:
    """A folder with exactly the files that were agreed to, which Python looks into first."""
    top = plugin.module.partition(".")[0]
    if top not in _copies:
        copy = TemporaryDirectory(prefix="scalevec-plugin-")
        for name, content in plugin.files.items():
            path = Path(copy.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        sys.path.insert(0, copy.name)
        _copies[top] = plugin.digest, copy
    digest, copy = _copies[top]
    if digest != plugin.digest:
        raise PluginError(f"{plugin.module}: this process has loaded another version of it; start a new one")
    return Path(copy.name).resolve()
