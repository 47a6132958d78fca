"""The commands that read results ask what they were told to ask, and else what the sweep asks."""

from pathlib import Path

import pandas as pd
import pytest

from orchestrator import sources
from orchestrator.commands import reading
from orchestrator.errors import Exit


@pytest.fixture
def rows() -> pd.DataFrame:
    """Two arms on one power law, four sizes and two seeds each."""
    found = []
    for arm, gain in (("baseline", 1.0), ("new", 0.99)):
        for n, noise in ((2e4, 1e-3), (4e4, -2e-3), (8e4, 2e-3), (1.6e5, -1e-3)):
            for seed in (0, 1):
                loss = gain * 40 * (96 * n**2) ** -0.09 * (1 + (noise if seed else -noise))
                row = {"arm": arm, "seed": seed, "n_params": n, "n_tokens": 16 * n, "loss": loss}
                found.append(row)
    return pd.DataFrame(found)


def test_a_report_takes_law_variable_and_convention(rows, tmp_path):
    rows.assign(n_params_total=2 * rows["n_params"]).to_csv(tmp_path / "r.csv", index=False)
    output = tmp_path / "r.html"
    options = {"law": "power-floor", "x": "N", "n_convention": "total", "bootstrap": 20}
    source = str(tmp_path / "r.csv")
    assert reading.write_report(source, tmp_path, output, "baseline", options) is Exit.DONE
    page = output.read_text(encoding="utf-8")
    assert "L = E + A/N^alpha" in page
    assert "N: all parameters (total)" in page


def test_a_report_is_about_the_law_and_the_variable_of_its_sweep(rows, tmp_path, monkeypatch):
    asks = {"reference": "baseline", "law": "power", "x": "n_tokens", "margin": 0.005}
    found = sources.Source("s", rows, compare=asks)
    monkeypatch.setattr(sources, "open_source", lambda *_: found)
    output = tmp_path / "r.html"
    assert reading.write_report("s", Path(tmp_path), output, None, {"bootstrap": 20}) is Exit.DONE
    assert "L = A/D^alpha" in output.read_text(encoding="utf-8")
