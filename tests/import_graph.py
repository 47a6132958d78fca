"""The imports between the project's modules, read from their source without running it."""

import ast
import graphlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT_PACKAGE = "scalevec"
PUBLIC_DECORATORS = "scalevec.plugins"
"""What plugins import, those of examples too; it stands above the five packages and imports none of them."""


class ImportGraph:
    """The modules below ``packages`` of the folder ``checkout``, and which of them each one imports.

    A module's name is its path: ``analysis.report.html`` is ``analysis/report/html.py``,
    ``analysis.__init__`` is the package's own file. Imports inside functions count; those
    under ``if TYPE_CHECKING:`` do not.
    """

    def __init__(self, checkout: Path, packages: tuple[str, ...]) -> None:
        self.packages = packages
        self.paths = {
            ".".join(path.relative_to(checkout).with_suffix("").parts): path
            for package in packages
            for path in sorted((checkout / package).rglob("*.py"))
        }
        self.targets = {name: self._imported(name) for name in self.paths}

    def _imported(self, name: str) -> set[str]:
        tree = ast.parse(self.paths[name].read_text(encoding="utf-8"))
        return {self._resolved(name, dotted) for dotted in dotted_imports(tree)} - {name, ""}

    def _resolved(self, importer: str, dotted: str) -> str:
        """Return the module that holds the imported name, or nothing where it is not the project's."""
        root, _, inner = dotted.partition(".")
        assert root, f"{importer} has a relative import"
        assert root not in self.packages, f"{importer} imports {dotted} without {ROOT_PACKAGE}"
        if root != ROOT_PACKAGE or dotted == PUBLIC_DECORATORS:
            return ""
        candidates = (inner, f"{inner}.__init__", inner.rpartition(".")[0])
        modules = [name for name in (*candidates, f"{candidates[2]}.__init__") if name in self.paths]
        assert modules, f"{importer} imports {dotted}, which is no module of {', '.join(self.packages)}"
        return modules[0]

    def circles(self, folder: str) -> list[str]:
        """Return each import along a circle of the files and subfolders of ``folder``, or nothing."""
        inside = {name: name.removeprefix(f"{folder}.").partition(".")[0] for name in self._below(folder)}
        edges = {
            (inside[name], inside[target]): f"{name} -> {target}"
            for name in inside
            for target in self.targets[name]
            if target in inside and inside[target] != inside[name]
        }
        sorter = graphlib.TopologicalSorter({child: set[str]() for child in inside.values()})
        for importer, target in edges:
            sorter.add(importer, target)
        try:
            sorter.prepare()
        except graphlib.CycleError as error:
            # The cycle is listed from what is imported to what imports it.
            return [edges[importer, target] for target, importer in pairwise(error.args[1])]
        return []

    def _below(self, folder: str) -> list[str]:
        return [name for name in self.paths if name.startswith(f"{folder}.")]

    def folders(self) -> dict[str, set[str]]:
        """Return each folder that holds modules, with its files and subfolders."""
        folders: dict[str, set[str]] = {}
        for name in self.paths:
            parts = name.split(".")
            for depth in range(1, len(parts)):
                folders.setdefault(".".join(parts[:depth]), set()).add(parts[depth])
        return folders


def dotted_imports(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of everything imported in ``tree``: ``from a import b`` gives ``a.b``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif not _is_for_type_checkers(node):
            yield from dotted_imports(node)


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
