"""The files of a plugin, found without importing it: beside the sweep file, or installed.

A process that runs from a snapshot has the plugins that were sent with it, and looks there first.
"""

import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scalevec.model.fields import ConfigurationError, PluginSource
from scalevec.sweeps.trainers.source_files import with_imports

MANIFEST, FOLDER = "plugins.json", "plugins"
"""In a snapshot: the ``code_version`` of each module, and the packages."""
MOST_BYTES = 20_000_000


class PluginError(ValueError):
    """A plugin cannot be used; the message says which, why, and what to do."""


@dataclass(frozen=True)
class Plugin:
    """A module, all files of its package, and the modules beside the sweep file that these import.

    Each file has its path from the package's parent.

    parent: the folder that the package lies in.
    """

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


def find(module: str, folder: Path | None = None, code_version: int | None = None) -> Plugin:
    """Return the plugin ``module`` of a sweep file in ``folder``; without one, what is installed.

    Raises:
        PluginError: It is not there, lies outside of the folder, or is no text.
    """
    folder = folder.resolve() if folder else None
    parent = _place_of(module, folder)
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "scalevec":
        raise PluginError(f"{module}: the name of a module of Python or scalevec; give yours another name")
    files = dict(_files_of(module, parent, top, folder))
    _file_of(module, files)
    files |= _imported(module, parent, files) if parent == folder else {}
    return Plugin(module, files, parent, code_version)


def sent_folder() -> Path | None:
    """Where the snapshot that this process runs from has its plugins; None outside of one."""
    root = Path(__file__).resolve().parents[3]
    return root / FOLDER if (root / "origin.json").is_file() else None


def sent_plugins() -> list[Plugin]:
    """The plugins of the snapshot that this process runs from."""
    return [find(module, sent_folder(), version) for module, version in _sent().items()]


def _sent() -> dict[str, int | None]:
    """The ``code_version`` of each module that was sent."""
    folder = sent_folder()
    manifest = folder.with_name(MANIFEST) if folder else None
    return json.loads(manifest.read_bytes()) if manifest and manifest.is_file() else {}


def snapshot_files(plugins: list[Plugin]) -> dict[str, bytes]:
    """What a snapshot holds of ``plugins``, by path."""
    if not plugins:
        return {}
    files = {f"{FOLDER}/{name}": content for plugin in plugins for name, content in plugin.files.items()}
    listed = {plugin.module: plugin.code_version for plugin in plugins}
    return {MANIFEST: json.dumps(listed, sort_keys=True).encode(), **files}


def _place_of(module: str, folder: Path | None) -> Path:
    """The folder in which the package of ``module`` lies."""
    sent, top = sent_folder(), module.partition(".")[0]
    if sent and module in _sent():
        return sent
    if folder and ((folder / top).is_dir() or (folder / f"{top}.py").is_file()):
        return folder
    try:
        spec = importlib.util.find_spec(top)  # of a top-level name: nothing is imported
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        beside = f"in {folder}, and none " if folder else ""
        raise PluginError(f"{module}: no module of that name {beside}is installed")
    where = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    if not where or where in ("built-in", "frozen"):
        raise PluginError(f"{module}: has no source file")
    path = Path(where)
    return path.parent.parent if path.name == "__init__.py" else path.parent


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
