"""``scalevec report``: one HTML file that opens offline."""

import shlex
import sys
from importlib.metadata import version
from pathlib import Path

from scalevec import analysis
from scalevec.analysis.options import OptionChanges
from scalevec.orchestrator.cli.options import RUNS, Maps, Output, Reference, Runs, SourceName
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.analyse.question import question
from scalevec.orchestrator.errors import InvalidInputError, read_or_warn
from scalevec.orchestrator.sources.sources import Source, choices_of, environments_of
from scalevec.orchestrator.worker.provenance import environment
from scalevec.results.files import utc_now
from scalevec.results.masking import masked
from scalevec.results.run_directory import RunDirectory


def report(
    source: SourceName,
    runs_dir: Runs = RUNS,
    output: Output = None,
    reference: Reference = None,
    given: OptionChanges = {},  # noqa: B006 (never changed)
    maps: Maps = None,
) -> Result:
    """Write the report: one HTML file that opens offline."""
    from scalevec.orchestrator.sources.measured import training_curves

    data, arm, options = question(source, runs_dir, reference, given, maps)
    if output and output.exists() and not output.is_file():
        raise InvalidInputError(f"--output is {output}, which is no file; name one")
    path = output or (data.folder.report_path if data.folder else Path(f"{data.name}-report.html"))
    analysis.write_report(
        data.rows,
        path.resolve() if output else path,  # a link in a folder that others share is not followed
        name=data.name,
        choices=choices_of(data),
        curves=training_curves(data, runs_dir),
        facts=_facts(data, runs_dir),
        reference=arm,
        options=options,
    )
    return Result({"report": str(path)}, f"report: {path}")


def _facts(data: Source, runs_dir: Path) -> dict[str, object]:
    """Return the provenance that the report shows."""
    facts: dict[str, object] = {"source": data.name, "trials": len(data.rows), "date": utc_now()[:10]}
    facts["command"] = masked(shlex.join(["scalevec", *sys.argv[1:]]))
    facts["scalevec"] = version("scalevec")
    if data.folder is None:
        return facts
    records = [
        record
        for name in data.rows["trial_id"].unique()
        for record in environments_of(RunDirectory.of(runs_dir, name))[-1:]
    ]
    for key in ("host", "python", "platform", "commit"):
        facts[key] = ", ".join(sorted({str(record.get(key)) for record in records})) or "not recorded"
    recorded = (record["versions"] for record in reversed(records) if record.get("versions"))
    versions = next(recorded, environment()["versions"])
    facts["versions"] = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    facts["uncommitted changes"] = "yes" if any(record.get("dirty") for record in records) else "no"
    content = read_or_warn(data.folder.sweep, None, "the sweep file is left out")
    corpus = (read_or_warn(data.folder.resolved, None, "the text is left out") or {}).get("corpus")
    if isinstance(corpus, dict):  # another's file may hold anything
        files = corpus.get("files")
        facts["text"] = ", ".join(
            map(str, [corpus.get("source"), *(files if isinstance(files, list) else [])])
        )
    facts["sweep file"] = (content or b"").decode(errors="backslashreplace")
    return facts
