"""The commands that read results ask what they were told to ask, and else what the sweep asks."""

import pandas as pd
import pytest

from scalevec.analysis.options import OptionChanges
from scalevec.orchestrator.commands.analyse.question import options_of, reference_of
from scalevec.orchestrator.commands.analyse.report import report
from scalevec.orchestrator.errors import Exit, InvalidInputError
from scalevec.orchestrator.sources import sources
from support import assert_refused


@pytest.fixture
def rows() -> pd.DataFrame:
    """Two arms on one power law, four sizes and two seeds each."""
    records = []
    for arm, gain in (("baseline", 1.0), ("new", 0.99)):
        for n, noise in ((2e4, 1e-3), (4e4, -2e-3), (8e4, 2e-3), (1.6e5, -1e-3)):
            for seed in (0, 1):
                loss = gain * 40 * (96 * n**2) ** -0.09 * (1 + (noise if seed else -noise))
                row = {"arm": arm, "seed": seed, "n_params": n, "n_tokens": 16 * n, "loss": loss}
                records.append(row)
    return pd.DataFrame(records)


def test_a_report_takes_law_variable_and_convention(rows, tmp_path):
    rows.assign(n_params_total=2 * rows["n_params"]).to_csv(tmp_path / "r.csv", index=False)
    output = tmp_path / "r.html"
    given: OptionChanges = {"law": "power-floor", "x": "N", "n_convention": "total", "bootstrap": 20}
    assert report(str(tmp_path / "r.csv"), tmp_path, output, given=given).code is Exit.DONE
    page = output.read_text(encoding="utf-8")
    assert "L = E + A/N^alpha" in page
    assert "N: all parameters. " in page


def test_the_reference_is_the_one_named_else_the_sweeps_own_else_baseline(rows):
    with_question = sources.Source("s", rows, compare={"reference": "new"})
    assert reference_of(with_question, "baseline") == "baseline"
    assert reference_of(with_question, None) == "new"
    assert reference_of(sources.Source("t", rows), None) == "baseline"


def test_without_an_arm_called_baseline_the_arms_are_listed(rows):
    source = sources.Source("t", rows.assign(arm=rows["arm"].replace("baseline", "old")))
    with pytest.raises(InvalidInputError, match=r"--reference is needed: .*; arms: new, old"):
        reference_of(source, None)


def test_arms_are_told_apart_by_their_text_whatever_stands_there():
    rows = pd.DataFrame({"arm": [[1, 2], 3, "new", None]})
    with pytest.raises(InvalidInputError, match=r"arms: 3, \[1, 2\], new"):
        reference_of(sources.Source("t", rows), None)


def test_an_option_other_than_in_the_sweep_file_is_named(rows, capsys):
    asks = {"reference": "baseline", "law": "power", "x": "D", "margin": 0.005}
    source = sources.Source("s", rows, compare=asks)
    _, options = options_of(source, {"law": "power-floor"})
    assert (options.law, options.x, options.margin) == ("power-floor", "D", 0.005)
    assert capsys.readouterr().err == "other than in the sweep file: law power-floor (sweep file: power)\n"
    options_of(source, {"law": "power"})
    assert capsys.readouterr().err == ""


def test_nothing_is_said_of_n_or_the_loss_of_a_table_that_does_not_say_it(rows, tmp_path, scalevec):
    rows.to_csv(tmp_path / "t.csv", index=False)
    for words in ("fit", "compare --verbose", "table", "table t.csv comparison", "table t.csv scaling"):
        name, *others = words.split()
        done = scalevec(name, *(others if "t.csv" in others else ["t.csv", *others]), "--bootstrap", "20")
        assert done.returncode == 0, done.stderr
        for claim in ("nats", "matri", "scale vectors", "test loss", "embedding"):
            assert claim not in done.stdout + done.stderr, words
    assert "N: the column n_params as it is" in scalevec("fit", "t.csv", "--bootstrap", "0").stdout


def test_a_sweeps_own_table_keeps_its_meanings(rows, tmp_path, scalevec):
    of_sweep = rows.assign(trial_id=[f"t{i}" for i in range(len(rows))], sweep="s")
    of_sweep.to_csv(tmp_path / "t.csv", index=False)
    shown = scalevec("compare", "t.csv", "--verbose", "--bootstrap", "20").stdout
    assert "nats/token" in shown
    assert "N: non-embedding matrix parameters without scale vectors" in shown


@pytest.mark.parametrize(
    "words", ["compare t.csv -o t.csv", "report t.csv -o ./t.csv", "import t.csv -o t.csv"]
)
def test_a_file_that_is_read_is_not_written_over(rows, tmp_path, scalevec, words):
    rows.to_csv(tmp_path / "t.csv", index=False)
    before = (tmp_path / "t.csv").read_bytes()
    assert_refused(scalevec(*words.split()), 2, "that is the file to read; name another one")
    assert (tmp_path / "t.csv").read_bytes() == before
