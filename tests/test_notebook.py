"""The notebook, cell by cell: a W&B export to a verdict, with plots."""

import json
from pathlib import Path

import matplotlib.pyplot as plt

EXAMPLES = Path(__file__).resolve().parents[1] / "docs" / "examples"


def test_the_notebook_goes_from_an_export_to_a_verdict(monkeypatch, capsys):
    monkeypatch.chdir(EXAMPLES)
    plt.switch_backend("agg")
    names: dict[str, object] = {}
    for cell in json.loads((EXAMPLES / "from_wandb.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)  # noqa: S102 (it is our own)
    verdicts = {arm: comparison.verdict for arm, comparison in names["compared"].items()}  # type: ignore[attr-defined]
    plt.close("all")
    assert verdicts == {"no-vector": "worse", "unified": "better"}
    assert "unified is better than one-vector" in capsys.readouterr().out
