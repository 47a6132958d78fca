"""Commands that read results: results, fit, compare, table, figures, report."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Exit, Refused
from results.files import write_atomic

if TYPE_CHECKING:
    from orchestrator.sources import Source

SHOW_VECTOR_NORMS = ("decay",)
"""Tables that show how large the scale vectors became, which the runs themselves have."""


def results(source: str, runs_dir: Path, form: str, *, vector_norms: bool = False) -> Exit:
    """The tidy table, one row a trial; on request with the norms of its scale vectors."""
    from orchestrator.measured import with_vector_norms
    from orchestrator.sources import open_source
    from results.tidy import write_table

    if form not in ("csv", "parquet", "json"):
        raise Refused(f"--format is {form!r}; allowed: csv, parquet, json")
    found = open_source(source, runs_dir)
    _warn(found)
    if vector_norms:
        found = with_vector_norms(found, runs_dir)
    write_table(found.rows, form, sys.stdout.buffer)
    return Exit.DONE


def fit(
    source: str,
    runs_dir: Path,
    options: Mapping[str, Any],
    *,
    where: str | None,
    hold_out: bool | str,
    as_json: bool,
) -> Exit:
    """Fit a law to each arm."""
    import analysis
    from orchestrator.sources import open_source

    found = open_source(source, runs_dir)
    _warn(found)
    fits = analysis.fit(found.rows, where=where, hold_out=hold_out, **options)
    if as_json:
        _print_json([one.to_dict() for one in fits])
    else:
        for one in fits:
            print(analysis.fit_text(one))
    return Exit.DONE


def compare(
    source: str,
    runs_dir: Path,
    reference: str | None,
    options: Mapping[str, Any],
    *,
    where: str | None,
    as_json: bool,
) -> Exit:
    """Compare each arm with the reference."""
    import analysis
    from orchestrator.sources import open_source

    found = open_source(source, runs_dir)
    _warn(found)
    comparisons = analysis.compare(found.rows, where=where, **_question(found, reference, options))
    if as_json:
        _print_json([one.to_dict() for one in comparisons])
        return Exit.DONE
    print(analysis.comparison_text(comparisons))
    return Exit.DONE


def table(
    source: str,
    runs_dir: Path,
    name: str,
    form: str,
    reference: str | None,
    options: Mapping[str, Any],
    *,
    where: str | None,
    output: Path | None,
) -> Exit:
    """A table of a paper as text, on standard output or in a file."""
    import analysis
    from orchestrator.measured import with_vector_norms
    from orchestrator.sources import open_source

    found = open_source(source, runs_dir)
    _warn(found)
    if name in SHOW_VECTOR_NORMS:
        found = with_vector_norms(found, runs_dir)
    shown = analysis.table(found.rows, name, where=where, **_question(found, reference, options))
    text = analysis.render(shown, form)
    if output is None:
        print(text, end="")
    else:
        write_atomic(output, text.encode())
        print(f"table: {output}")
    return Exit.DONE


def figures(
    source: str,
    runs_dir: Path,
    folder: Path,
    formats: Sequence[str],
    only: Sequence[str],
    reference: str | None,
    options: Mapping[str, Any],
    *,
    where: str | None,
) -> Exit:
    """The figures of a paper as files in ``folder``."""
    import analysis
    from orchestrator.measured import run_statistics, training_curves
    from orchestrator.sources import open_source, tuning_choices

    found = open_source(source, runs_dir)
    _warn(found)
    written = analysis.write_figures(
        found.rows,
        folder,
        formats=formats,
        only=only,
        where=where,
        choices=tuning_choices(found),
        curves=training_curves(found, runs_dir) if found.folder else None,
        statistics=run_statistics(found, runs_dir) if found.folder else None,
        **_question(found, reference, options),
    )
    for name, reason in written.left_out.items():
        print(f"no figure {name}: {reason}", file=sys.stderr)
    for path in written.paths:
        print(path)
    return Exit.DONE


def write_report(
    source: str,
    runs_dir: Path,
    output: Path | None,
    reference: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Exit:
    """One HTML file that opens offline."""
    import analysis
    from orchestrator.measured import training_curves
    from orchestrator.sources import open_source, tuning_choices

    found = open_source(source, runs_dir)
    _warn(found)
    path = output or (found.folder.report_path if found.folder else Path(f"{found.name}-report.html"))
    analysis.write_report(
        path,
        found.rows,
        name=found.name,
        choices=tuning_choices(found),
        curves=training_curves(found, runs_dir) if found.folder else None,
        facts=_facts(found, runs_dir),
        **_question(found, reference, options or {}),
    )
    print(f"report: {path}")
    return Exit.DONE


def _question(found: "Source", reference: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Reference, margin, and ``options`` with the sweep's own law and variable where none is given."""
    from orchestrator.sources import X_NAMES

    own = {"reference": _reference(found, reference), "margin": found.compare.get("margin")}
    if "law" in found.compare:
        own |= {"law": found.compare["law"], "x": X_NAMES[found.compare["x"]]}
    return {**own, **options}


def _reference(found: "Source", reference: str | None) -> str:
    chosen = reference or found.compare.get("reference")
    if chosen is None:
        raise Refused("--reference is needed for a table: the arm that the others are compared with")
    return str(chosen)


def _facts(found: "Source", runs_dir: Path) -> dict[str, object]:
    """Provenance as the report shows it."""
    from orchestrator.provenance import environment
    from results.run_directory import RunDirectory

    facts: dict[str, object] = {"source": found.name, "trials": len(found.rows)}
    if found.folder is None:
        return facts
    records = [
        record
        for name in found.rows["trial_id"].unique()
        for record in RunDirectory.of(runs_dir, name).environments()[-1:]
    ]
    for key in ("host", "python", "platform", "commit"):
        facts[key] = ", ".join(sorted({str(record.get(key)) for record in records})) or "not recorded"
    versions = records[-1]["versions"] if records else environment()["versions"]
    facts["versions"] = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    facts["uncommitted changes"] = "yes" if any(record.get("dirty") for record in records) else "no"
    facts["sweep file"] = (found.folder.sweep() or b"").decode()
    return facts


def _warn(found: "Source") -> None:
    for name, problem in found.problems.items():
        print(f"warning: {name[:12]}: {problem}", file=sys.stderr)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, allow_nan=False))
