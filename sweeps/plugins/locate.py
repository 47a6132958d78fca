"""The files of a plugin, found without importing it: beside the sweep file, by entry point, or installed.

A process that runs from a snapshot has the plugins that were sent with it, and looks there first.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scalevec.model.fields import ConfigurationError, PluginSource
from scalevec.sweeps.imported_modules import with_imports

GROUP = "scalevec.plugins"
"""Entry points of this group give an installed plugin's module a name that ``plugins:`` may use."""
MANIFEST, FOLDER = "plugins.json", "plugins"
"""In a snapshot: module and ``code_version`` by the names in the sweep file, and the packages."""
MOST_BYTES = 20_000_000


class PluginError(ValueError):
    """A plugin cannot be used; the message says which, why, and what to do."""


@dataclass(frozen=True)
class Plugin:
    """A module, all files of its package, and the modules beside the sweep file that these import.

    Each file has its path from the package's parent.

    name: what the sweep file calls it. parent: the folder that the package lies in.
    """

    name: str
    module: str
    files: Mapping[str, bytes]
    parent: Path
    code_version: int | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all files."""
        whole = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            whole.update(f"{name}\0{len(content)}\0".encode() + content)
        return whole.hexdigest()

    @property
    def identity(self) -> PluginSource:
        """What trials that use the plugin hold of it."""
        version = self.code_version
        return PluginSource(self.module, self.digest if version is None else f"code_version {version}")

    @property
    def text(self) -> str:
        """The source of the module itself."""
        return self.files[_file_of(self.module, self.files)].decode()


def find(name: str, folder: Path | None = None, code_version: int | None = None) -> Plugin:
    """Return the plugin that a sweep file in ``folder`` calls ``name``; without one, what is installed.

    Raises:
        PluginError: It is not there, lies outside of the folder, or is no text.
    """
    folder = folder.resolve() if folder else None
    module, parent = _place_of(name, folder)
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "scalevec":
        raise PluginError(f"{name}: the name of a module of Python or scalevec; give yours another name")
    files = dict(_files_of(name, parent, top, folder))
    _file_of(module, files)
    files |= _imported(name, parent, files) if parent == folder else {}
    return Plugin(name, module, files, parent, code_version)


def entry_points() -> dict[str, str]:
    """The modules of installed plugins by the names of their entry points; none of them is imported."""
    return {point.name: point.module for point in importlib.metadata.entry_points(group=GROUP)}


def sent_folder() -> Path | None:
    """Where the snapshot that this process runs from has its plugins; None outside of one."""
    root = Path(__file__).resolve().parents[3]
    return root / FOLDER if (root / "origin.json").is_file() else None


def sent_plugins() -> list[Plugin]:
    """The plugins of the snapshot that this process runs from."""
    folder = sent_folder()
    return [find(name, folder, entry[1]) for name, entry in _sent().items()] if folder else []


def _sent() -> dict[str, tuple[str, int | None]]:
    """Module and ``code_version`` of what was sent, by the names in the sweep file."""
    folder = sent_folder()
    manifest = folder.with_name(MANIFEST) if folder else None
    return json.loads(manifest.read_bytes()) if manifest and manifest.is_file() else {}


def snapshot_files(plugins: list[Plugin]) -> dict[str, bytes]:
    """What a snapshot holds of ``plugins``, by path."""
    if not plugins:
        return {}
    files = {f"{FOLDER}/{name}": content for plugin in plugins for name, content in plugin.files.items()}
    listed = {plugin.name: (plugin.module, plugin.code_version) for plugin in plugins}
    return {MANIFEST: json.dumps(listed, sort_keys=True).encode(), **files}


def _place_of(name: str, folder: Path | None) -> tuple[str, Path]:
    """The module that ``name`` stands for, and the folder in which its package lies."""
    sent = sent_folder()
    if sent and name in _sent():
        return _sent()[name][0], sent
    top = name.partition(".")[0]
    if folder and ((folder / top).is_dir() or (folder / f"{top}.py").is_file()):
        return name, folder
    points = entry_points()
    module = points.get(name, name)
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)  # of a top-level name: nothing is imported
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        known = ", ".join(sorted(points)) or "none"
        beside = f"in {folder}, none " if folder else ""
        raise PluginError(
            f"{name}: no module of that name {beside}is installed, and no entry point is called so "
            f"(there are: {known})"
        )
    where = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    if not where or where in ("built-in", "frozen"):
        raise PluginError(f"{name}: has no source file")
    path = Path(where)
    return module, path.parent.parent if path.name == "__init__.py" else path.parent


def _files_of(name: str, parent: Path, top: str, folder: Path | None) -> Iterator[tuple[str, bytes]]:
    """The files of the package or module ``top``; not what Python or an editor leaves among them."""
    root = parent / top
    single = root.with_name(f"{top}.py")
    left = MOST_BYTES
    for path in sorted(root.rglob("*")) if root.is_dir() else [single] if single.exists() else []:
        inner = path.relative_to(parent)
        is_folder = path.is_dir() and not path.is_symlink()
        if is_folder or any(part.startswith(".") or part == "__pycache__" for part in inner.parts):
            continue
        if not path.is_file():
            raise PluginError(f"{name}: {path} is a link to a folder, or no file; a plugin is plain files")
        left -= path.stat().st_size
        if left < 0:
            raise PluginError(f"{name}: {root} has more than {MOST_BYTES:,} bytes; keep data elsewhere")
        if parent == folder and not path.resolve().is_relative_to(parent):
            message = f"{path} leads out of the sweep's folder, to {path.resolve()}; copy it, or install it"
            raise PluginError(f"{name}: {message}")
        if not path.name.endswith("~"):
            yield inner.as_posix(), path.read_bytes()


def _imported(name: str, parent: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What ``files`` import from beside their package, but for what has the name of a module of Python."""
    try:
        paths = set(with_imports(parent, files, unasked=False)) - files.keys()
    except ConfigurationError as error:
        raise PluginError(f"{name}: {error}") from None
    ours = [path for path in paths if re.split("[/.]", path)[0] not in {"scalevec", *sys.stdlib_module_names}]
    for path in ours:
        if not (parent / path).resolve().is_relative_to(parent):
            raise PluginError(f"{name}: imports {parent / path}, which is a link out; install it")
    return {path: (parent / path).read_bytes() for path in ours}


def _file_of(module: str, files: Mapping[str, bytes]) -> str:
    """Which of ``files`` is the module. Raises ``PluginError``."""
    path = module.replace(".", "/")
    for file in (f"{path}.py", f"{path}/__init__.py"):
        if file in files:
            return file
    raise PluginError(f"{module}: there is no source file {path}.py or {path}/__init__.py")
