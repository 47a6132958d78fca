"""The command line: bad input gets one message and its exit code, and never a traceback."""

import json

from support import assert_refused, succeeded


def test_a_missing_corpus_file_is_named_before_anything_is_written(scalevec, sweep_file, tmp_path):
    text = sweep_file.read_text()
    start = text.index("files: [") + len("files: [")
    sweep_file.write_text(text[:start] + '"nowhere/*.txt"' + text[text.index("]", start) :])
    assert_refused(scalevec("run", "small.yaml"), 2, "nowhere/*.txt")
    assert not list((tmp_path / "runs").glob("trials/*"))


def test_arms_that_are_identical_by_construction_give_a_warning(scalevec, sweep_file):
    sweep_file.write_text(sweep_file.read_text().replace("tune:", "  iwd: {scale_vectors: iwd}\ntune:"))
    done = succeeded(scalevec("plan", "small.yaml"))
    assert "arms baseline and iwd are identical by construction" in done.stderr


def test_a_plan_writes_nothing_and_says_that_the_corpus_is_not_prepared(scalevec, sweep_file, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    done = succeeded(scalevec("plan", "small.yaml"))
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


def test_a_plan_takes_its_noise_from_a_figure_or_a_pilot(scalevec, sweep_file, tmp_path):
    rows = ["arm,rung,seed,n_params,n_tokens,loss"]
    for arm, seed, loss in (("baseline", 0, 3.0), ("baseline", 1, 3.1), ("none", 0, 3.0), ("none", 1, 3.2)):
        rows.append(f"{arm},25k,{seed},25000,400000,{loss}")
    (tmp_path / "pilot.csv").write_text("\n".join(rows))
    assert "sd 0.002 per pair, as given" in scalevec("plan", "small.yaml", "--noise", "0.002").stdout
    shown = scalevec("plan", "small.yaml", "--pilot", "pilot.csv").stdout
    assert "sd 0.071 per pair, a pilot with 1 degree of freedom" in shown
    assert_refused(scalevec("plan", "small.yaml", "--noise", "0"), 2, "--noise is 0.0")
    assert_refused(scalevec("plan", "small.yaml", "--noise", "1", "--pilot", "pilot.csv"), 2, "one of them")


def test_a_warning_of_a_library_is_one_line_without_a_place_in_our_code(scalevec_process, tmp_path):
    sizes = ((n, seed) for n in (1e6, 1e7) for seed in (0, 1))
    rows = (f"{arm},{n},{20 * n},{seed},{3 + seed / 9}" for n, seed in sizes for arm in ("a", "\u57fa"))
    (tmp_path / "t.csv").write_text("\n".join(("arm,n_params,n_tokens,seed,loss", *rows)))
    err = scalevec_process("figures", "t.csv", "--only", "loss", "--reference", "a", "-o", "figures").stderr
    assert [line.startswith("warning: Glyph 22522") for line in err.splitlines() if "Glyph" in line] == [True]
    assert "style.py" not in err


def test_ctrl_c_while_commands_are_being_loaded_gets_one_line(command, monkeypatch):
    def interrupted(*_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scalevec.orchestrator.cli.main.application", interrupted)
    done = command("results", "nothing")
    assert (done.returncode, done.stderr) == (130, "scalevec: interrupted\n")
