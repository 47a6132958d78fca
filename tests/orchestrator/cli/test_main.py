"""The command line: bad input gets one message and its exit code, and never a traceback."""

import json
import os
from pathlib import Path

import pytest


def assert_refused(done, *parts: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr


COMMANDS = [
    "demo",
    "plan",
    "run",
    "status",
    "results",
    "fit",
    "compare",
    "table",
    "figures",
    "theory",
    "report",
    "explain",
    "logs",
    "store",
    "corpus",
    "schema",
]


def test_help_names_every_command(scalevec_process):
    shown = scalevec_process("--help")
    assert shown.returncode == 0
    assert all(f"  {name} " in shown.stdout for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, scalevec):
    shown = scalevec(command, "--help")
    assert shown.returncode == 0
    assert "Usage: scalevec" in shown.stdout


def test_an_unknown_command_is_refused(scalevec):
    assert_refused(scalevec("runn"), "runn")


def test_an_unknown_key_names_the_line_and_the_nearest(scalevec, sweep_file, tmp_path):
    sweep_file.write_text(sweep_file.read_text().replace("seeds: [0, 1]", "sedes: [0, 1]"))
    assert_refused(scalevec("run", "small.yaml"), "small.yaml:12", "sedes", "seeds")
    assert not (tmp_path / "runs").exists()


def test_a_sweep_file_that_is_not_there(scalevec):
    assert_refused(scalevec("run", "absent.yaml"), "absent.yaml")


def test_a_missing_corpus_file_is_named_before_anything_is_written(scalevec, sweep_file, tmp_path):
    text = sweep_file.read_text()
    start = text.index("files: [") + len("files: [")
    sweep_file.write_text(text[:start] + '"nowhere/*.txt"' + text[text.index("]", start) :])
    assert_refused(scalevec("run", "small.yaml"), "nowhere/*.txt")
    assert not list((tmp_path / "runs").glob("trials/*"))


def test_a_corpus_too_small_for_one_batch(scalevec, sweep_file, tmp_path):
    sweep_file.write_text(sweep_file.read_text().replace("batch_tokens: 256", "batch_tokens: 25600000"))
    assert_refused(scalevec("run", "small.yaml"), "too few for one batch")
    assert not (tmp_path / "runs" / "trials").exists()


def test_arms_that_are_identical_by_construction_give_a_warning(scalevec, sweep_file):
    sweep_file.write_text(sweep_file.read_text().replace("tune:", "  iwd: {scale_vectors: iwd}\ntune:"))
    done = scalevec("plan", "small.yaml")
    assert done.returncode == 0, done.stderr
    assert "arms baseline and iwd are identical by construction" in done.stderr


def test_tuning_seeds_among_the_comparison_seeds(scalevec, sweep_file):
    sweep_file.write_text(sweep_file.read_text().replace("seeds: [100]", "seeds: [1]"))
    assert_refused(scalevec("run", "small.yaml"), "seeds", "small.yaml:11")


def test_an_executor_that_does_not_exist(scalevec, sweep_file):
    assert_refused(scalevec("run", "small.yaml", "--executor", "cloud"), "cloud", "local")


def test_a_source_that_is_nothing(scalevec):
    assert_refused(scalevec("results", "nothing"), "nothing")


def test_results_of_a_sweep_that_never_ran(scalevec, sweep_file):
    assert_refused(scalevec("results", "small.yaml"), "has not been run")


def test_a_column_that_is_missing_in_a_table(scalevec, tmp_path):
    (tmp_path / "t.csv").write_text("n_param,n_tokens,loss\n1,2,3\n")
    assert_refused(scalevec("fit", "t.csv"), "n_params", "n_param")


def test_an_expression_that_calls_something(scalevec, tmp_path):
    (tmp_path / "t.csv").write_text("n_params,n_tokens,loss\n1,2,3\n")
    assert_refused(scalevec("fit", "t.csv", "--where", "__import__('os')"), "where")


def test_a_trial_id_that_matches_nothing(scalevec, tmp_path):
    (tmp_path / "runs" / "trials").mkdir(parents=True)
    assert_refused(scalevec("explain", "abcdef"), "abcdef")


def test_a_table_needs_a_reference(scalevec, tmp_path):
    (tmp_path / "t.csv").write_text("n_params,n_tokens,loss\n1,2,3\n")
    assert_refused(scalevec("compare", "t.csv"), "--reference")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_a_lack_of_the_machine(scalevec, sweep_file, tmp_path):
    (tmp_path / "runs").mkdir(mode=0o500)
    assert scalevec("run", "small.yaml").returncode == 3


def test_a_file_in_the_place_of_the_runs_folder(scalevec, sweep_file, tmp_path):
    (tmp_path / "runs").write_text("a file")
    done = scalevec("run", "small.yaml")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "runs" in done.stderr


def test_debug_shows_the_traceback(scalevec):
    assert "Traceback" in scalevec("--debug", "results", "nothing").stderr


def test_the_schema_is_a_json_schema(scalevec):
    schema = json.loads(scalevec("schema").stdout)
    assert {"name", "ladder", "arms", "tune"} <= schema["properties"].keys()


def test_a_plan_before_anything_ran_lists_every_trial(scalevec, sweep_file, tmp_path):
    rows = json.loads(scalevec("plan", "small.yaml", "--json").stdout)
    assert len(rows) == 14
    assert {row["state"] for row in rows} == {"pending"}


def test_a_plan_writes_nothing_and_says_that_the_corpus_is_not_prepared(scalevec, sweep_file, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    done = scalevec("plan", "small.yaml")
    assert done.returncode == 0, done.stderr
    assert "corpus not prepared: epochs and trial ids are unknown" in done.stdout
    assert "to see epochs and trial ids: scalevec corpus prepare small.yaml" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_plan_takes_ids_and_epochs_from_a_prepared_corpus(scalevec, sweep_file, tmp_path):
    assert scalevec("corpus", "prepare", "small.yaml").returncode == 0
    before = sorted((tmp_path / "runs").rglob("*"))
    done = scalevec("plan", "small.yaml", "--json")
    rows = json.loads(done.stdout)
    assert "corpus prepare" not in done.stderr
    assert all(row["trial_id"] for row in rows if row["stage"] == "tuning")
    assert all(row["epochs"] > 1e-3 for row in rows)
    assert sorted((tmp_path / "runs").rglob("*")) == before


def test_a_users_own_model_file_does_not_shadow_ours(scalevec_process, sweep_file, tmp_path):
    (tmp_path / "model.py").write_text("raise RuntimeError('the wrong model')")
    assert scalevec_process("plan", "small.yaml").returncode == 0


def test_status_where_nothing_ran(scalevec):
    done = scalevec("status")
    assert done.returncode == 0
    assert "no sweep has been run" in done.stdout


def test_a_sweep_name_with_slashes_is_refused(scalevec, sweep_file, tmp_path):
    sweep_file.write_text(sweep_file.read_text().replace("name: small", "name: ../../small"))
    assert_refused(scalevec("run", "small.yaml"), "name", "../../small")
    assert not Path(tmp_path.parent.parent / "small").exists()


def test_a_plan_takes_its_noise_from_a_figure_or_a_pilot(scalevec, sweep_file, tmp_path):
    rows = ["arm,rung,seed,n_params,n_tokens,loss"]
    for arm, seed, loss in (("baseline", 0, 3.0), ("baseline", 1, 3.1), ("none", 0, 3.0), ("none", 1, 3.2)):
        rows.append(f"{arm},25k,{seed},25000,400000,{loss}")
    (tmp_path / "pilot.csv").write_text("\n".join(rows))
    assert "sd 0.002 per pair, as given" in scalevec("plan", "small.yaml", "--noise", "0.002").stdout
    shown = scalevec("plan", "small.yaml", "--pilot", "pilot.csv").stdout
    assert "sd 0.071 per pair, a pilot with 1 degree of freedom" in shown
    assert_refused(scalevec("plan", "small.yaml", "--noise", "0"), "--noise is 0.0")
    assert_refused(scalevec("plan", "small.yaml", "--noise", "1", "--pilot", "pilot.csv"), "one of them")


def test_a_plan_gives_its_power_as_an_object_beside_the_list_of_trials(scalevec, sweep_file):
    shown = scalevec("plan", "small.yaml", "--power", "--noise", "0.002", "--json").stdout
    analysis = json.loads(shown)
    assert analysis["noise"]["sd"] == 0.002
    assert analysis["power"] == 0.8
    assert {"what", "df", "between", "difference", "multiplier"} <= analysis["design"].keys()
    assert analysis["more"]["what"] == "one more seed"
