"""The pages of the documentation that follow from the code, as hooks of mkdocs: ``make docs``.

Run as a script it writes ``sweeps/schema.json``, which the first line of every shipped sweep names.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalevec import sweeps

CHECKOUT = Path(__file__).resolve().parents[1]
SCHEMA = CHECKOUT / "sweeps" / "schema.json"
Schema = Mapping[str, Any]


def main() -> None:
    """Write the JSON Schema of the sweep file beside the shipped sweeps."""
    SCHEMA.write_text(schema_text(sweeps.json_schema()), encoding="utf-8")


def schema_text(schema: Schema) -> str:
    """``schema`` with one line for each section, so that a change can be read."""
    parts = [f'"{name}": {json.dumps(part)}' for name, part in schema.items() if name != "$defs"]
    definitions = ",\n".join(f'"{name}": {json.dumps(part)}' for name, part in schema["$defs"].items())
    return "{\n" + ",\n".join([*parts, f'"$defs": {{\n{definitions}\n}}']) + "\n}\n"


if __name__ == "__main__":
    main()
