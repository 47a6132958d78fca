"""The files of a trainer or a plugin: those that a sweep file names, and what they import from beside them.

Imports are found in the text of the code, which is never run. What is found only at run time
(``import_module(name)``, ``exec``, an edit of ``sys.path``) is not followed; :func:`not_covered` names it.
"""

import ast
import glob
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import all_suffixes
from itertools import islice
from pathlib import Path, PurePosixPath

from scalevec.model.fields import ConfigurationError
from scalevec.sweeps.trainers.any_trial import SourceFile, file_digest

SCRIPTS = (".py", ".sh")
"""Endings of words of a command that name a file which has to be there."""


def files_of_words(folder: Path, words: Iterable[str]) -> Iterator[str]:
    """Yield the arguments that are files below ``folder``, alone or in a word: ``@args``, ``-ca.yaml``."""
    return (name for name in _names_in(folder, words) if _is_file(folder / name))


def _names_in(folder: Path, words: Iterable[str]) -> Iterator[str]:
    above = f"{folder.absolute()}/"
    for word in words:
        glued = word[2:] if re.match(r"-\w[^=]", word) else ""
        for name in dict.fromkeys((word, word.partition("=")[2], glued, *re.split("[=,@:\"']", word))):
            if (below := name.removeprefix(above)) and not Path(below).is_absolute():
                yield below


def scripts_of_words(folder: Path, words: Iterable[str]) -> Iterator[str]:
    """Yield the scripts below ``folder`` that ``words`` may be, whatever their placeholders stand for."""
    for word in words:
        if word.endswith(SCRIPTS):
            yield from matching(folder, re.sub(r"\{[^{}]*\}", "*", word.rpartition("=")[2]))


def matching(folder: Path, pattern: str) -> list[str]:
    """As :func:`files_of`; a folder stands for all Python in it."""
    is_folder = not _is_file(folder / pattern) and (folder / pattern).is_dir()
    return files_of(folder, f"{pattern.rstrip('/')}/**/*.py" if is_folder else pattern)


def files_of(folder: Path, pattern: str) -> list[str]:
    """The files that ``pattern``, the name of one or a glob, names as seen from ``folder``, sorted."""
    if _is_file(folder / pattern):
        return [pattern]
    paths = glob.iglob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 (Path's refuses absolute patterns)
    if len(names := list(islice(paths, 10 * MOST_FILES))) == 10 * MOST_FILES:
        raise _too_much(f"{pattern} with at least {len(names):,} files")
    return sorted(name for name in names if _is_file(folder / name))


def source_files(folder: Path, names: Iterable[str]) -> tuple[SourceFile, ...]:
    """The files ``names`` below ``folder`` with their digests, sorted, each once. Raises ``OSError``."""
    states = ((name, (folder / name).stat()) for name in sorted(set(names)))
    digests = ((name, _digest_of(folder / name, state.st_mtime_ns, state.st_size)) for name, state in states)
    return tuple(SourceFile(name, digest) for name, digest in digests)


@lru_cache(maxsize=4096)  # more than the files of one trainer
def _digest_of(path: Path, _changed: int, _size: int) -> str:
    return file_digest(path)


def _is_file(path: Path) -> bool:
    return _file_state(path) is not None


MOST_FILES, MOST_BYTES = 2_000, 20_000_000
LONGEST, LONGEST_OTHER = 2_000_000, 200_000
"""Bytes of a file that is looked at for imports; of one whose name does not end in .py."""
UNASKED = frozenset(("sitecustomize", "usercustomize")) | sys.stdlib_module_names
"""Modules that Python and its libraries import unasked, from beside a script first."""
_SUFFIXES = tuple(all_suffixes())
_MODULE, _CODE = re.compile("(?:-[A-Za-z]*?m|--module=?)(.*)"), re.compile("-[A-Za-z]*?c(.*)", re.DOTALL)
_PATH = re.compile(r"(?!/|.*\.\.)([\w./-]{2,100}|[\w./*?-]{1,90}\.\w{1,9})")
_IMPORTS = ("import_module", "__import__")
_EDITS = ("insert", "append", "extend")
_JOINS = ("join", "joinpath", "Path")
_RUNS = (*_IMPORTS, "run_path", "run_module", "spec_from_file_location", "addsitedir")


@dataclass(frozen=True)
class _Code:
    """What a text imports (dots of a relative import, name), and calls that bring in what cannot be seen.

    Of such a call there is the line, its text, and the texts that it holds. ``words`` are texts that may be
    names of files, with their lines; one with a slash may be that of any folder.
    """

    imports: tuple[tuple[int, str], ...] = ()
    unseen: tuple[tuple[int, str, frozenset[str]], ...] = ()
    words: tuple[tuple[int, str], ...] = ()
    is_python: bool = True


@dataclass
class Beside:
    """The code below ``folder``, each once; names are relative to it, modules are looked for in ``bases``."""

    folder: Path
    bases: list[str] = field(default_factory=lambda: [""])
    _listed: dict[str, frozenset[str]] = field(default_factory=dict)
    _packages: set[str] = field(default_factory=set)
    _looked_for: set[str] = field(default_factory=set)

    def module(self, module: str, bases: Iterable[str] | None = None) -> Iterator[str]:
        """Yield the files of ``module``, or of the whole package that it belongs to, if it is here."""
        if bases is None and module in self._looked_for:
            return
        self._looked_for |= {module} if bases is None else set()
        for base in self.bases if bases is None else bases:
            yield from self._in(base, module.split("."))

    def unasked(self) -> Iterator[str]:
        """Yield the files of modules that Python imports unasked."""
        for base in self.bases:
            for name in sorted({entry.partition(".")[0] for entry in self._names(base)} & UNASKED):
                yield from self._in(base, [name])

    def _in(self, base: str, parts: Iterable[str]) -> Iterator[str]:
        for part in parts:
            inner, names = f"{base.rstrip('/')}/{part}" if base else part, self._names(base)
            if part in names and any(f"__init__{suffix}" in self._names(inner) for suffix in _SUFFIXES):
                yield from self._package(inner)
                return
            if files := [f"{inner}{suffix}" for suffix in _SUFFIXES if f"{part}{suffix}" in names]:
                yield from files
                return
            if part not in names:
                return
            base = inner

    def _package(self, package: str) -> Iterator[str]:
        if package in self._packages:
            return
        self._packages.add(package)
        pattern = f"{glob.escape(package)}/**/*"
        entries = glob.iglob(pattern, root_dir=self.folder, recursive=True)  # noqa: PTH207
        for count, name in enumerate(entries):
            if count > 10 * MOST_FILES:  # links in a circle too
                raise _too_much(f"{self.folder / package} with more than {count:,} entries")
            if name.endswith(_SUFFIXES) and "/__pycache__/" not in name:
                yield name

    def _names(self, inner: str) -> frozenset[str]:
        if inner not in self._listed:
            try:
                self._listed[inner] = frozenset(os.listdir(self.folder / inner))  # noqa: PTH208
            except (OSError, ValueError):
                self._listed[inner] = frozenset()
        return self._listed[inner]


def _parents(name: str) -> list[str]:
    """The folders around ``name``, the nearest first; that of the sweep file has no name."""
    return ["" if str(path) == "." else str(path) for path in PurePosixPath(name).parents] or [""]


def with_imports(
    folder: Path, names: Iterable[str], words: Iterable[str] = (), *, unasked: bool = True
) -> list[str]:
    """The files ``names`` below ``folder`` with all that they import from there, directly or not, sorted.

    Args:
        folder: Where modules are looked for first; then beside each of ``names``.
        words: Of a command that may have ``-m MODULE`` or ``-c CODE``, whose imports count too.
        unasked: Whether modules count too that Python would take from there in place of its own.

    Raises:
        ConfigurationError: They are too many.
    """
    names, words = list(dict.fromkeys(names)), list(words)
    given = frozenset(names)
    beside = Beside(folder, list(dict.fromkeys(["", *(_parents(name)[0] for name in names)])))
    queue = [*names, *(name for module in _modules_of(words) for name in beside.module(module))]
    if unasked and any(name.endswith(".py") for name in queue):
        queue += beside.unasked()
    known: set[str] = set()
    n_bytes = 0
    while queue:
        name = queue.pop()
        if name in known or (state := _file_state(path := folder / name)) is None:
            continue
        known.add(name)
        if name not in given:
            n_bytes += state.st_size
        if len(known) - len(names) > MOST_FILES or n_bytes > MOST_BYTES:
            raise _too_much(f"what it imports: {len(known):,} files, {n_bytes:,} bytes")
        above = _parents(name)
        for dots, module in _code_of(path, state.st_mtime_ns, state.st_size).imports:
            queue += beside.module(module, above[dots - 1 : dots] if dots else None)
    return sorted(known)


_OF_CODE = (".py", ".yaml", ".yml", ".toml")
"""In a folder that a script names, such as Hydra's, these decide what is trained."""
_OF_SETTINGS = (*_OF_CODE[1:], ".json")
_TAKES_OVER = ("", ".py", ".sh", ".bash", ".mk")
"""Suffixes of files that start others: ``launch``, ``Makefile``."""


def not_covered(folder: Path, names: Iterable[str], words: Iterable[str] = ()) -> list[str]:
    """What the files ``names`` bring in that their text does not show, with its line; not what they name.

    Also the folders that ``words`` of the command name.
    """
    names = list(names)
    folders = (str(parent) for name in names for parent in PurePosixPath(name).parents)
    named = {*map(os.path.normpath, names), *folders}
    packages = {str(PurePosixPath(name).parent) for name in names if name.endswith("/__init__.py")}
    of_words = dict.fromkeys(os.path.normpath(word) for word in _names_in(folder, words) if ".." not in word)
    lines = [f"what is in {word}" for word in of_words if word not in named and (folder / word).is_dir()]
    for name in names:
        state = (path := folder / name).stat()
        code = _code_of(path, state.st_mtime_ns, state.st_size)
        if not code.is_python and path.suffix in _TAKES_OVER:
            lines.append(f"what {name} imports or starts")
        lines += [f"{name}:{line} {text}" for line, text, held in code.unseen if held.isdisjoint(named)]
        told = {text for _, _, held in code.unseen for text in held} | named
        for line, word in code.words:
            # As seen from where the command runs, from beside the file, and in packages, as their data.
            above = ("", str(PurePosixPath(name).parent), *(packages if PurePosixPath(word).suffix else ()))
            paths = [os.path.normpath(PurePosixPath(inner) / word) for inner in above]
            held = (inner.suffix for beside in paths[:2] for inner in (folder / beside).glob("*"))
            is_folder = any("/" in word or suffix in _OF_CODE for suffix in held)
            if told.isdisjoint(paths) and (is_folder or any(files_of(folder, beside) for beside in paths)):
                lines.append(f"{name}:{line} {word.rstrip('/')}")
                told.update(paths, (os.path.dirname(each) for each in paths if "*" in each))  # noqa: PTH120
    return lines


def _modules_of(words: list[str]) -> Iterator[str]:
    """The modules of ``-m MODULE``, and what is imported by ``-c CODE``, in the words of a command."""
    for option, value in zip(words, [*words[1:], ""], strict=False):
        if named := _MODULE.fullmatch(option):
            yield named[1] or value
        elif given := _CODE.fullmatch(option):
            yield from (module for _, module in _parsed((given[1] or value).encode()).imports)


def _too_much(what: str) -> ConfigurationError:
    allowed = f"{MOST_FILES:,} files and {MOST_BYTES:,} bytes of code beside it; keep data elsewhere"
    return ConfigurationError("command", what, allowed)


def _file_state(path: Path) -> os.stat_result | None:
    """What the system says of a file; None where there is none."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return None
    return state if stat.S_ISREG(state.st_mode) else None


@lru_cache(maxsize=4096)
def _code_of(path: Path, _changed: int, size: int) -> _Code:
    if size > (LONGEST if path.suffix == ".py" else LONGEST_OTHER) or path.suffix in _SUFFIXES[1:]:
        return _Code(is_python=False)
    if path.suffix in _OF_SETTINGS:  # much of YAML would be Python too
        lines = enumerate(path.read_text(errors="replace").splitlines(), 1)
        named = ((number, word) for number, line in lines for word in re.findall(r"[\w./-]+", line))
        return _Code(words=tuple(pair for pair in named if _PATH.fullmatch(pair[1]) and Path(pair[1]).suffix))
    return _parsed(path.read_bytes())


def _parsed(text: bytes) -> _Code:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in its strings
            nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Code(is_python=False)
    imports = tuple(dict.fromkeys(pair for node in nodes for pair in _imports(node)))
    words = tuple(pair for node in nodes for pair in _words(node) if _PATH.fullmatch(pair[1]))
    return _Code(imports, tuple(_unseen(node) for node in nodes if _is_unseen(node)), words)


def _words(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Texts that may name files: patterns, up to where one begins, and parts of a path with a slash."""
    match node:
        case ast.JoinedStr(values):
            texts = (str(value.value) if isinstance(value, ast.Constant) else "*" for value in values)
            yield node.lineno, "".join(texts)
        case ast.Constant(str(text)):
            for word in text.split():
                yield from ((node.lineno, each) for each in {word: 0, re.split(r"[*?\[]", word)[0]: 0})
        case ast.BinOp(_, ast.Div(), ast.Constant(str(part))):
            yield node.lineno, f"{part}/"
        case ast.Call(func, args) if _last(func) in _JOINS:
            parts = (arg.value for arg in args if isinstance(arg, ast.Constant))
            yield from ((node.lineno, f"{part}/") for part in parts if isinstance(part, str))


def _imports(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Import(names):
            yield from ((0, alias.name) for alias in names)
        case ast.ImportFrom(module, names, level):
            yield from ((level, f"{module or ''}.{alias.name}".lstrip(".")) for alias in names)
        case ast.Call(func, [ast.Constant(str(name)), *_]) if _last(func) in _IMPORTS:
            yield len(name) - len(name.lstrip(".")), name.lstrip(".")


def _is_unseen(node: ast.AST) -> bool:
    match node:
        case ast.Assign([target]) | ast.AugAssign(target):
            return re.fullmatch(r"sys\.path(\[.*\])?", ast.unparse(target)) is not None
        case ast.Call(func, args):
            is_edit = _last(func) in _EDITS and ast.unparse(func).startswith("sys.path.")
            is_run = _last(func) in _RUNS and not any(_imports(node))
            return is_edit or is_run or (isinstance(func, ast.Name) and func.id == "exec" and bool(args))
    return False


def _unseen(node: ast.AST) -> tuple[int, str, frozenset[str]]:
    held = (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant))
    text = ast.unparse(node)
    return node.lineno, text if len(text) <= 80 else f"{text[:77]}...", frozenset(map(str, held))  # type: ignore[attr-defined]


def _last(function: ast.expr) -> str:
    return str(getattr(function, "attr", getattr(function, "id", "")))


def names_files_below(pattern: object) -> bool:
    """Whether ``pattern`` is a glob of files below a folder, which looks at each of them once."""
    if not isinstance(pattern, str) or re.search(r"[\0{]|^~", pattern):
        return False
    path = Path(pattern)
    deep = [part for part in path.parts if "**" in part]
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and deep in ([], ["**"])
