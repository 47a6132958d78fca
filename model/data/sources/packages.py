"""The Python sources of installed distributions, found through the lists of files of their installation."""

import importlib.metadata
from collections.abc import Callable, Sequence
from pathlib import Path

from scalevec.model.data.sources.files import CorpusError

IsLibrary = Callable[[str], bool]
"""Whether a file or folder of this name belongs to a library: tests and what a build wrote do not."""
PIN = "=="


def package_files(packages: Sequence[str], is_library: IsLibrary) -> list[Path]:
    """The .py files of the distributions ``packages``, each ``NAME`` or ``NAME==VERSION``, sorted, each once.

    A version without a local part, as 2.13.0, is that of every build of it, as 2.13.0+cpu. Raises
    :class:`CorpusError` for a distribution that is missing, of another version, or without sources.
    """
    return sorted({path for package in packages for path in _sources(package, is_library)})


def _sources(package: str, is_library: IsLibrary) -> list[Path]:
    distribution = _installed(package)
    listed = [
        file
        for file in distribution.files or ()
        if file.suffix == ".py" and ".." not in file.parts and all(map(is_library, file.parts))
    ]
    paths = [Path(str(distribution.locate_file(file))) for file in listed]
    if absent := next((path for path in paths if not path.is_file()), None):
        raise CorpusError(f"corpus package {package!r}: its file {str(absent)!r} is gone; install it again")
    if not paths:
        raise CorpusError(f"corpus package {package!r} has no Python sources; name another or leave it out")
    return paths


def _installed(package: str) -> importlib.metadata.Distribution:
    name, _, version = package.partition(PIN)
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        remedy = f"pip install {package!r}, or leave it out"
        raise CorpusError(f"corpus package {package!r} is not installed; {remedy}") from None
    installed = distribution.version
    if version and version not in (installed, installed.partition("+")[0]):
        raise CorpusError(
            f"corpus package {package!r}: version {installed} is installed, which has other text; "
            f"pip install {package!r}, or name the version that shall be read"
        )
    return distribution
