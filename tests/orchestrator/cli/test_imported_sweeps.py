"""Runs of other trackers as a sweep that is analysed like any other and never run."""

import json
import math

import pandas as pd
import pytest

import scalevec
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.results.sweep_folder import SweepFolder

SWEEP = """\
name: {name}
corpus: {{source: synthetic}}
ladder: [tiny-25k]
arms: {{baseline: {{}}}}
seeds: [0]
"""


def one_run(arm: str, size: float, rate: float, seed: int) -> dict[str, object]:
    steps = round(20 * size / 1000)
    loss = 40 * (6 * size * steps * 1000 * (1.1 if arm == "muon" else 1)) ** -0.07
    loss += 0.02 * math.log(rate / 0.01) ** 2 + 1e-3 * (7 * seed + len(arm)) % 3 * 1e-3
    return {
        "Name": f"{arm}-{size:g}-{rate}-{seed}",
        "State": "finished",
        "config.optimizer": arm,
        "config.seed": seed,
        "config.learning_rate": rate,
        "val/loss": round(loss, 6),
        "params": f"{size / 1e3:g}k",
        "_step": steps,
        "batch_tokens": "1,000",
    }


@pytest.fixture
def export(tmp_path) -> pd.DataFrame:
    """Two arms at three sizes, tuned on seed 7 and compared on two others, with their history."""
    rows = [
        one_run(arm, size, rate, seed)
        for arm in ("adamw", "muon")
        for size in (1e5, 2e5, 4e5)
        for rate, seed in ((0.005, 7), (0.01, 7), (0.02, 7), (0.01, 0), (0.01, 1))
    ]
    table = pd.DataFrame(rows)
    table.to_csv(tmp_path / "runs.csv", index=False)
    history = [
        {"run": row["Name"], "_step": row["_step"] * part // 10, "train/loss": row["val/loss"] + 1 / part}
        for row in rows
        for part in range(1, 11)
    ]
    pd.DataFrame(history).to_csv(tmp_path / "history.csv", index=False)
    return table


@pytest.fixture
def take(export, command):
    """Imports the export as the sweep ``mine``, or with other words."""

    def call(*more: object, name: str = "mine", source: str = "runs.csv"):
        words = ("--map", "arm=config.optimizer", "--history", "history.csv", "--sweep", name)
        return command("import", source, *words, *more)

    return call


def test_imported_runs_are_analysed_like_those_of_a_sweep(take, command, tmp_path):
    done = take()
    assert done.code == 0, done.err
    assert "mine: 30 runs, 30 with a curve, 6 grids of rates" in done.out
    assert command("compare", "mine", "--reference", "adamw").code == 0
    assert command("fit", "mine", "--bootstrap", 0).code == 0
    drawn = command(
        "figures", "mine", "--reference", "adamw", "-o", "f", "--format", "svg", "--only", "tuning",
        "--only", "curves",
    )  # fmt: skip
    assert drawn.code == 0, drawn.err
    assert {path.name for path in (tmp_path / "f").iterdir()} >= {"tuning.svg", "curves.svg"}


def test_the_page_says_that_runs_were_imported_and_from_which_file(take, command, tmp_path):
    take()
    done = command("report", "mine", "--reference", "adamw")
    assert done.code == 0, done.err
    page = (tmp_path / "runs/sweeps/mine/report.html").read_text()
    digest = json.loads((tmp_path / "runs/sweeps/mine/imported.json").read_text())["sources"]["runs.csv"]
    assert "imported: sources" in page
    assert f"runs.csv: {digest}" in page


def test_the_command_that_is_said_imports_the_same_again_and_nothing_has_changed(take, command, tmp_path):
    import shlex

    first = take()
    printed = next(line for line in first.err.splitlines() if line.startswith("the same again: "))
    before = {path: path.read_bytes() for path in (tmp_path / "runs/sweeps/mine").iterdir()}
    again = command(*shlex.split(printed.removeprefix("the same again: "))[1:])
    assert again.code == 0, again.err
    assert "nothing has changed" in again.out
    assert {path: path.read_bytes() for path in (tmp_path / "runs/sweeps/mine").iterdir()} == before


def test_a_second_import_of_other_runs_says_what_differs_and_changes_nothing(take, export, tmp_path):
    take()
    before = (tmp_path / "runs/sweeps/mine/rows.parquet").read_bytes()
    export.loc[0, "val/loss"] += 0.01
    export.drop(index=29).to_csv(tmp_path / "runs.csv", index=False)
    refused = take()
    assert refused.code == 2
    assert "1 gone (muon-400000-0.01-1); 1 changed (adamw-100000-0.005-7)" in refused.err
    assert (tmp_path / "runs/sweeps/mine/rows.parquet").read_bytes() == before


def test_the_name_of_a_sweep_that_is_run_here_is_refused(take, tmp_path):
    SweepFolder.of(tmp_path / "runs", "mine").write_members([])
    refused = take()
    assert (refused.code, "is there already, and was not imported" in refused.err) == (2, True)


def test_a_refused_import_leaves_no_folder(take, tmp_path):
    (tmp_path / "history.csv").write_text("run,_step\nr1,1\n")
    refused = take()
    assert (refused.code, "--map history_loss=COLUMN" in refused.err) == (2, True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("source", ["mine", "mine.yaml"])
def test_nothing_of_imported_runs_is_planned_run_or_called_off(take, command, tmp_path, source):
    take()
    (tmp_path / "mine.yaml").write_text(SWEEP.format(name="mine"))
    before = sorted(path.name for path in (tmp_path / "runs/sweeps/mine").iterdir())
    for verb in ("plan", "run", "submit", "status", "cancel", "retry", "collect"):
        refused = command(verb, source)
        assert refused.code == 2, verb
        assert "sweep mine in runs holds imported runs, which cannot be planned, run" in refused.err
    assert sorted(path.name for path in (tmp_path / "runs/sweeps/mine").iterdir()) == before


def test_the_status_of_all_sweeps_leaves_imported_ones_out(take, command):
    take()
    assert command("status").out.strip() == "no sweep has been run in runs"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--history", "history.csv"), "are for --sweep NAME"),
        (("--map", "history_loss=x"), "are for --sweep NAME"),
        (("--sweep", "mine", "-o", "t.csv"), "give one of them"),
        (("--sweep", "../x"), "sweep name '../x'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(export, command, words, why):
    refused = command("import", "runs.csv", *words)
    assert (refused.code, why in refused.err) == (2, True), refused.err


def test_an_imported_sweep_in_python_has_results_and_curves_and_no_trials(take, tmp_path):
    take()
    sweep = scalevec.open(tmp_path / "runs").sweep("mine")
    assert len(sweep.results()) == 30
    assert sweep.curves().groupby("arm").size().tolist() == [60, 60]
    with pytest.raises(InvalidInputError, match="holds imported runs"):
        sweep.trials()


def test_an_imported_run_is_no_trial_and_the_message_says_where_its_row_is(take, command, tmp_path):
    take()
    runs = scalevec.open(tmp_path / "runs")
    name = runs.results("mine").trial_id[0][:12]
    with pytest.raises(InvalidInputError, match="is an imported run of sweep mine"):
        runs.sweep("mine").trial(name)
    for words in (("explain",), ("export", "-o", "out"), ("generate", "--prompt", "x")):
        refused = command(words[0], name, *words[1:])
        assert (refused.code, "its row is in scalevec results mine" in refused.err) == (2, True), refused.err


def test_a_sweep_that_another_process_imports_meanwhile_stays(take, command, tmp_path, monkeypatch):
    from scalevec.orchestrator.tuning import choices

    written = choices.to_json

    def late(given):
        (tmp_path / "runs/sweeps/mine").mkdir()
        (tmp_path / "runs/sweeps/mine/theirs").touch()
        return written(given)

    monkeypatch.setattr(choices, "to_json", late)
    refused = take()
    assert (refused.code, "another process has just written it" in refused.err) == (2, True), refused.err
    assert [path.name for path in (tmp_path / "runs/sweeps/mine").iterdir()] == ["theirs"]
