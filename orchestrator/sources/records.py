"""The records of a sweep as far as they can be read; standard error says what is left out and why."""

from pathlib import Path
from typing import Any

from scalevec.orchestrator.errors import read_or_warn
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder

Record = dict[str, Any]


def members_or_none(folder: SweepFolder) -> list[Record]:
    """Return the trials of one sweep of several: none where they cannot be read, which is said."""
    return read_or_warn(lambda: folder.members() or [], [], f"sweep {folder.name} is left out")


def tuning_choices(folder: SweepFolder) -> list[Record]:
    """Return the frozen choices of a sweep as plain values; none where they cannot be read, which is said."""
    from scalevec.orchestrator.tuning import choices

    def read() -> list[Record]:
        tuned = (folder.resolved() or {}).get("tune")
        content = choices.to_json(choices.from_json(folder.tuning(), tuned or ()))["choices"]
        return list(content)

    return read_or_warn(read, [], f"the choices of sweep {folder.name} are left out")


def compare_section(folder: SweepFolder) -> Record:
    """Return what the sweep asks of its comparison: as resolved when it ran, else by its kept file."""

    def resolved() -> Record:
        return _options(folder.resolved_path, (folder.resolved() or {}).get("compare", {}))

    def given() -> Record:
        from scalevec.orchestrator.sources.sweep_files import load_sweep

        sweep = load_sweep(folder.name, folder.path.parents[1], look_for_files=False)
        return _options(folder.sweep_path, sweep.resolved()["compare"])

    section = read_or_warn(
        resolved, None, f"the options of the comparison are taken from {folder.sweep_path.name}"
    )
    return (
        read_or_warn(given, {}, "options of the comparison are the defaults") if section is None else section
    )


def _options(path: Path, section: Any) -> Record:
    """``section`` if it holds options of an analysis. Raises ``CorruptRecordError``."""
    from scalevec.analysis.options import AnalysisOptions
    from scalevec.sweeps.options import analysis_options

    try:
        AnalysisOptions(**analysis_options(section))
        if not isinstance(section.get("reference", ""), str):
            raise TypeError(f"reference is {section['reference']!r:.80}")
    except (AttributeError, TypeError, ValueError) as error:
        raise CorruptRecordError(path, f"has no usable section compare ({error})") from None
    return dict(section)


def environments_of(directory: RunDirectory) -> list[Record]:
    """Return the environment of each attempt; none where they cannot be read, which is said."""
    return read_or_warn(directory.environments, [], "machine and code are left out")
