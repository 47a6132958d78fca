"""``scalevec schema``: the JSON Schema of the sweep file."""

import json

from scalevec import sweeps
from scalevec.orchestrator.cli.options import Output
from scalevec.orchestrator.cli.output import write_text
from scalevec.orchestrator.errors import Exit


def schema(output: Output = None) -> Exit:
    """Print the JSON Schema of the sweep file."""
    write_text(json.dumps(sweeps.json_schema(), indent=1), output)
    return Exit.DONE
