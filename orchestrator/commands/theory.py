"""The command that reads what was measured along runs."""

import json
from pathlib import Path

from orchestrator.errors import Exit


def theory(source: str, runs_dir: Path, *, as_json: bool) -> Exit:
    """Movement against prediction, eigenvalues, drift and sharpness by arm."""
    from analysis.theory import theory_summary, theory_text
    from orchestrator.measured import measured
    from orchestrator.sources import open_source

    rows = theory_summary(measured(open_source(source, runs_dir), runs_dir))
    print(json.dumps(rows, indent=1, allow_nan=False) if as_json else theory_text(rows))
    return Exit.DONE
