"""Tables of other trackers become tidy rows, or are refused with all that is wrong at once."""

import gzip
import io
import json
import math
import os
import threading
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis import compare
from scalevec.analysis.errors import DataError
from scalevec.orchestrator.sources.imports.column_names import parsed_maps
from scalevec.orchestrator.sources.imports.given_tables import GivenTable, read_given, table_of
from scalevec.orchestrator.sources.imports.tidy_rows import ImportedTable, as_read, imported, repeated


def given(tmp_path, **texts: str) -> list[GivenTable]:
    """Each text as the CSV file of its name."""
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    return [read_given(str(tmp_path / f"{name}.csv")) for name in texts]


def from_csv(tmp_path, text: str, *maps: str, unit: str | None = None) -> ImportedTable:
    return imported(given(tmp_path, export=text), maps, unit)


def refusal(tmp_path, text: str, *maps: str, unit: str | None = None) -> str:
    with pytest.raises(DataError) as refused:
        from_csv(tmp_path, text, *maps, unit=unit)
    return str(refused.value)


EXPORT = """\
Name,State,_step,config.batch_size,config.block_size,config.seed,train/loss,val/loss,model/params,Runtime
a,finished,1000,32,1024,1,3.1,3.2,10.6M,100
b,finished,1000,32,1024,2,3.0,3.1,"10,600,000",90
"""


def test_columns_are_known_by_their_names_and_numbers_as_they_are_written(tmp_path):
    rows = from_csv(tmp_path, EXPORT).rows
    assert rows["loss"].tolist() == [3.2, 3.1]
    assert rows["n_params"].tolist() == [10.6e6, 10.6e6]
    assert rows["n_tokens"].tolist() == [1000 * 32 * 1024] * 2
    assert rows["seed"].tolist() == [1, 2]
    assert rows["status"].tolist() == ["completed"] * 2
    assert rows["train/loss"].tolist() == [3.1, 3.0]


def test_the_maps_that_are_said_choose_the_same_columns_again(tmp_path):
    first = from_csv(tmp_path, EXPORT)
    again = from_csv(tmp_path, EXPORT, *repeated(first.columns))
    pd.testing.assert_frame_equal(first.rows[sorted(first.rows)], again.rows[sorted(again.rows)])


def test_what_tells_the_arms_apart_is_no_setting_of_pairs(tmp_path):
    text = EXPORT.replace("Runtime", "config.optimizer")
    text = text.replace(",100\n", ",adamw\n").replace(",90\n", ",muon\n")
    rows = from_csv(tmp_path, text, "arm=config.optimizer").rows
    assert rows["arm"].tolist() == ["adamw", "muon"]
    assert "optimizer" not in rows


def test_parameters_follow_from_layers_and_width(tmp_path):
    text = "loss,tokens,n_layer,n_embd\n3.2,1e9,6,384\n"
    assert from_csv(tmp_path, text).rows["n_params"].tolist() == [12 * 6 * 384**2]


@pytest.mark.parametrize(
    ("state", "loss", "status"),
    [
        ("finished", "3.2", "completed"),
        ("FINISHED", "nan", "diverged"),
        ("diverged", "3.2", "diverged"),
        ("finished", "", "diverged"),
        ("finished", "-nan", "diverged"),
        ("finished", "Infinity", "diverged"),
        ("crashed", "3.2", None),
        ("running", "3.9", None),
    ],
)
def test_the_state_of_a_run_and_its_loss_say_whether_it_has_a_result(tmp_path, state, loss, status):
    for column in ("state", "run_state", "sys/state", "job_status"):
        text = f"loss,tokens,params,{column}\n3.0,1e9,1e6,finished\n{loss},1e9,1e6,{state}\n"
        table = from_csv(tmp_path, text)
        assert table.rows["status"].tolist() == ["completed", *([status] if status else [])]
        assert any("left out: 1" in note and "(rows 2)" in note for note in table.notes) == (status is None)


@pytest.mark.parametrize(
    ("column", "well", "badly", "ids"),
    [
        ("config.crashed", "false", "True", ["a"]),
        ("sys/failed", "0", "1", ["a"]),
        ("ExitCode", "0:0", "137:0", ["a"]),
        ("done", "yes", "no", ["a"]),
        ("isFailed", "false", "true", ["a"]),
        ("error", "", "CUDA out of memory", ["a"]),
        ("error", "0.003", "0.002", ["a", "b"]),
        ("diverged", "no", "yes", ["a", "b"]),
        ("failed", "0 of 3", "1 of 3", ["a", "b"]),
    ],
)
def test_columns_of_answers_tell_which_runs_failed(tmp_path, column, well, badly, ids):
    table = from_csv(tmp_path, f"id,loss,N,tokens,{column}\na,3,1M,20M,{well}\nb,4,1M,20M,{badly}\n")
    assert table.rows["run"].tolist() == ids
    assert ("diverged" in set(table.rows["status"])) is (column == "diverged")
    assert any("left out: 1 failed (rows 2)" in note for note in table.notes) is (ids == ["a"])


@pytest.mark.parametrize("names", [("val/loss", "eval/loss"), ("metrics.loss", "summary.loss")])
def test_several_candidates_for_the_loss_are_refused_with_the_option_that_chooses(tmp_path, names):
    text = f"{','.join(names)},tokens,params\n3.2,3.3,1e9,1e6\n"
    assert f"loss may be {', '.join(names)}: --map 'loss=`{names[0]}`'" in refusal(tmp_path, text)
    assert from_csv(tmp_path, text.replace("3.3", "3.2")).rows["loss"].tolist() == [3.2]


def test_a_training_loss_is_never_guessed_and_warned_of_when_it_is_chosen(tmp_path):
    text = "train/loss,tokens,params\n3.2,1e9,1e6\n"
    assert "of training text may be train/loss" in refusal(tmp_path, text)
    notes = from_csv(tmp_path, text, "loss=train/loss").notes
    assert any("looks like the loss of the training text" in note for note in notes)


@pytest.mark.parametrize(("name", "unit"), [("val_bpb", "bits-per-byte"), ("Val loss (bits)", "bits")])
def test_a_column_that_is_called_like_another_unit_is_said(tmp_path, name, unit):
    notes = from_csv(tmp_path, f"{name},tokens,params\n3.2,1e9,1e6\n", f"loss=`{name}`").notes
    assert any(f"looks like {unit}: scalevec import --unit {unit} takes it" in note for note in notes)


@pytest.mark.parametrize(("given", "ours"), [("losss", "loss"), ("N", "n_params"), ("lr", "learning_rate")])
def test_a_name_that_is_nearly_ours_is_no_name_of_a_further_column(given, ours):
    with pytest.raises(DataError, match=f"is called {ours} here"):
        parsed_maps([f"{given}=x"])


def test_devices_or_accumulation_beside_the_batch_make_tokens_ambiguous(tmp_path):
    text = "loss,step,batch_size,seq_len,grad_accum,params\n3.2,1000,8,512,4,1e6\n"
    assert "--map 'n_tokens=step * batch_size * seq_len * grad_accum'" in refusal(tmp_path, text)
    names = ("num_gpus", "nproc_per_node", "dp_size", "accumulate_grad_batches", "num_nodes", "gpus_per_node")
    others = ("system.gpu_count", "trainer.devices", "ddp_world_size", "slurm.ntasks", "num_tpu_cores", "gas")
    for name in (*names, *others):
        shown = f"`{name}`" if "." in name else name
        assert f"* {shown}'" in refusal(tmp_path, text.replace("grad_accum", name))
    in_tokens = text.replace("grad_accum", "x").replace(",8,", ",0.5M,")
    asked = "batch_size may be in tokens or in sequences: --map 'n_tokens=step * batch_size' or --map"
    assert asked in refusal(tmp_path, in_tokens)
    rows = from_csv(tmp_path, text, "n_tokens=step * batch_size * seq_len * grad_accum").rows
    assert rows["n_tokens"].tolist() == [1000 * 8 * 512 * 4]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("three,1e9,1e6,finished", "column 'loss', row 2: 'three' is not a number"),
        ("3.1,many,1e6,finished", "column 'n_tokens', row 2: 'many' is not a number"),
        ("3.1,1e9,1e6,odd", "unknown: odd. To leave rows out: --where \"status != 'odd'\""),
        (
            "-1,1e9,1e6,finished",
            "column 'loss', row 2: -1; allowed: finite numbers above zero. Is it written",
        ),
        ("3.1,1e9,10.6,finished", "n_params of rows 2 is below 10,000 beside 1.06e+07"),
    ],
)
def test_a_cell_that_cannot_be_is_refused_with_its_row(tmp_path, row, why):
    assert why in refusal(tmp_path, f"loss,tokens,params,state\n3.2,1e9,10.6M,finished\n{row}\n")


def test_what_is_wrong_with_each_file_is_said_at_once(tmp_path):
    both = r"first.csv:\n  no column of tokens(.|\n)*second.csv:\n  no column of parameters"
    with pytest.raises(DataError, match=both):
        from_two(tmp_path, "loss,params\n3,1e6\n", "loss,tokens\n3,1e9\n")


def test_what_many_files_lack_is_said_once(tmp_path):
    with pytest.raises(DataError, match=r"first.csv, .*second.csv:\n  no column of tokens[^\n]*$"):
        from_two(tmp_path, "loss,params\n3,1e6\n", "loss,params\n3.1,1e6\n")


def test_perplexities_are_told_by_their_size_and_taken_when_they_are_named(tmp_path):
    text = "loss,tokens,params\n24.5,1e9,1e6\n20.1,2e9,1e6\n"
    assert "a perplexity?" in refusal(tmp_path, text)
    expected = [math.log(24.5), math.log(20.1)]
    assert from_csv(tmp_path, text, unit="perplexity").rows["loss"].tolist() == expected


def test_bits_become_nats_and_bits_per_byte_do_where_the_bytes_of_a_token_are_known(tmp_path):
    text = "loss,tokens,params,bytes_per_token\n4,1e9,1e6,2.5\n"
    assert from_csv(tmp_path, text, unit="bits").rows["loss"][0] == 4 * math.log(2)
    assert from_csv(tmp_path, text, unit="bits-per-byte").rows["loss"][0] == 4 * math.log(2) * 2.5
    unknown = from_csv(tmp_path, text.replace("bytes_per_token", "other"), unit="bits-per-byte")
    assert unknown.rows["loss"][0] == 4
    assert "--unit bits-per-byte" in unknown.notes[0]


def test_a_row_that_repeats_another_is_left_out_and_a_run_with_two_results_is_refused(tmp_path):
    head, row = "id,loss,tokens,params\n", "r1,3.2,1e9,1e6\n"
    copies = from_csv(tmp_path, head + row + row)
    assert len(copies.rows) == 1
    assert "row 2: equal to others in every column" in copies.notes[0]
    words = "row 1, row 2 are of the same runs (r1)"
    assert words in refusal(tmp_path, head + row + row.replace("3.2", "3.1"))


@pytest.mark.parametrize(
    ("text", "override"),
    [
        ("loss,tokens,params\n24.5,1e9,1e6\n20.1,2e9,1e6\n", "--unit nats"),
        ("loss,tokens,params\n3.2,1e9,9000\n3.1,1e9,2e6\n", "--map n_params=params"),
        ("loss,tokens,params,state\n3.2,1e9,1e6,odd\n", "--map status='completed'"),
    ],
)
def test_a_guess_that_refuses_names_the_option_that_overrides_it(tmp_path, text, override):
    option, _, value = override.partition(" ")
    assert value.split("=")[0] in refusal(tmp_path, text)
    maps, unit = ([value], None) if option == "--map" else ([], value)
    assert len(from_csv(tmp_path, text, *maps, unit=unit).rows) == text.count("e9")


def test_rows_of_one_step_that_fill_each_others_blanks_are_one(tmp_path):
    text = "epoch,step,train_loss,val_loss\n0,9,4.0,\n0,9,,3.9\n1,19,3.6,\n1,19,,3.5\n"
    maps = ["n_params=1e6", "n_tokens=step*100000", "arm=run"]
    rows = imported(given(tmp_path, adamw=text, muon=text), maps).rows
    known = [("adamw", 3.9), ("adamw", 3.5), ("muon", 3.9), ("muon", 3.5)]
    assert list(zip(rows["arm"], rows["loss"], strict=True)) == known


def test_rows_that_are_left_out_are_not_asked_about(tmp_path):
    tables = given(tmp_path, log="iter,val/loss\n0,10.9\n1000,3.5\n")
    maps = ["n_params=1e6", "n_tokens=iter*1000"]
    with pytest.raises(DataError, match="n_tokens > 0"):
        imported(tables, maps)
    assert imported(tables, maps, where="n_tokens > 0").rows["loss"].tolist() == [3.5]


def test_a_log_without_seeds_or_names_is_a_curve_whose_last_evaluation_counts(tmp_path):
    steps = "".join(f"1e6,{step}00,{3.9 - step / 10 if step % 2 else ''}\n" for step in range(1, 7))
    maps = ["n_tokens=step*100000"]
    assert from_csv(tmp_path, f"params,step,val_loss\n{steps}", *maps).rows["n_tokens"].max() == 5e7


def test_rows_of_tuning_are_said_to_stay_out_of_a_comparison(tmp_path):
    text = "loss,tokens,params,stage\n3.2,1e9,1e6,main\n3.1,1e9,2e6,tuning\n"
    assert "1 row of the stage tuning: they are not compared" in from_csv(tmp_path, text).notes[-1]
    assert "1 row of the stage tuning: they are not compared" in as_read(*given(tmp_path, log=text)).notes[-1]


def test_a_run_that_names_its_arm_still_names_its_checkpoints(tmp_path):
    tables = given(tmp_path, adamw="step,val_loss\n1,3.5\n2,3.4\n", muon="step,val_loss\n1,3.4\n2,3.3\n")
    rows = imported(tables, ["n_params=1e6", "n_tokens=step*1e7", "arm=run"]).rows
    assert compare(rows, reference="adamw", bootstrap=0).only.loss_difference.mean == pytest.approx(-0.1)


@pytest.mark.parametrize("where", ["width == 256", "params > 0", "loss < 100"])
def test_a_run_that_ended_by_a_trackers_word_is_left_out_where_what_is_asked_for_is_blank(tmp_path, where):
    runs = "loss,tokens,params,width,State\n3.2,1e9,1e6,256,finished\n,1e9,,,finished\n"
    assert imported(given(tmp_path, runs=runs), where=where).rows["loss"].tolist() == [3.2]


def test_files_that_are_arms_are_told_apart_by_their_names(tmp_path):
    text = "seed,loss,tokens,params\n0,3.2,1e9,1e6\n1,3,1e9,1e6\n"
    tables = given(tmp_path, adamw=text, muon=text.replace("3.2", "3.1"))
    assert imported(tables, ["arm=source"]).rows["arm"].tolist() == ["adamw"] * 2 + ["muon"] * 2
    assert "--map arm=source" in imported(tables).notes[0]


def with_losses(arm: str, *losses: float, first_seed: int = 0) -> str:
    """A table with a seed for each loss, at one N and tokens."""
    rows = (f"{arm},{seed},{loss},1e9,1e6\n" for seed, loss in enumerate(losses, first_seed))
    return "arm,seed,loss,tokens,params\n" + "".join(rows)


def from_two(tmp_path, first: str, second: str) -> ImportedTable:
    return imported(given(tmp_path, first=first, second=second))


def test_a_loss_in_another_unit_than_the_others_of_its_column_is_refused_with_its_row(tmp_path):
    message = refusal(tmp_path, with_losses("a", 2.9, 2.91, 0.9, 2.92))
    assert "differ by a factor of 3.23, of another unit? (row 3)" in message


def test_bits_in_one_file_beside_nats_in_another_are_refused(tmp_path):
    nats = (3.0, 3.01, 2.99, 3.02)
    bits = [loss / math.log(2) for loss in (2.98, 2.99)]
    with pytest.raises(DataError, match=r"as bits are to nats \(.*second.csv row 1, .*second.csv row 2\)"):
        from_two(tmp_path, with_losses("a", *nats), with_losses("b", *bits))


def test_a_run_that_failed_to_train_is_said_and_counts_as_it_is(tmp_path):
    table = from_csv(tmp_path, with_losses("a", 2.9, 2.91, 6.9, 2.92))
    assert len(table.rows) == 4
    assert "(row 3): runs that failed to train?" in table.notes[0]


def test_a_run_that_two_files_have_counts_once(tmp_path):
    table = from_two(tmp_path, with_losses("a", 3.0, 3.1), with_losses("a", 3.1, 3.2, first_seed=1))
    assert table.rows["seed"].tolist() == [0, 1, 2]
    assert "second.csv row 1: in another source too, left out" in table.notes[0]


def test_a_run_with_two_results_in_two_files_is_refused(tmp_path):
    text = "id,loss,tokens,params\nr1,3.2,1e9,1e6\n"
    with pytest.raises(DataError, match=r"first.csv row 1, .*d.csv row 1 are of the same run"):
        from_two(tmp_path, text, text.replace("3.2", "3.1"))


def test_projects_with_other_columns_go_one_below_the_other(tmp_path):
    tables = given(tmp_path, first="val/loss,tokens,params,arm\n3.2,1e9,1e6,a\n")
    config = {"n_params": {"value": 2e6}, "arm": "b"}
    record = {"eval": {"loss": 3.0}, "config": config, "total_tokens": 2e9}
    (tmp_path / "second.jsonl").write_text(json.dumps(record) + "\n")
    table = imported([*tables, read_given(str(tmp_path / "second.jsonl"))])
    expected = [["a", 3.2, 1e6, 1e9], ["b", 3.0, 2e6, 2e9]]
    assert table.rows[["arm", "loss", "n_params", "n_tokens"]].to_numpy().tolist() == expected


def test_a_file_can_be_one_arm(tmp_path):
    assert from_csv(tmp_path, EXPORT, "arm='muon'").rows["arm"].tolist() == ["muon"] * 2
    assert "column 'loss', row 1: 'muon' is not a number" in refusal(tmp_path, EXPORT, "loss='muon'")


@pytest.mark.parametrize("text", ["loss", "=val/loss", "loss=", "a b=c"])
def test_a_map_that_is_none_is_refused_with_the_form(tmp_path, text):
    assert "NAME=COLUMN" in refusal(tmp_path, EXPORT, text)


def test_a_column_that_is_not_there_is_named_with_the_nearest(tmp_path):
    assert "nearest: 'train/loss'" in refusal(tmp_path, EXPORT, "loss=`trian/loss`")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("x.txt", "", "x.txt holds no table; allowed: .csv"),
        ("x.csv", "a,b\n", "has no rows or runs"),
        ("x.jsonl", '{"a": 1}\n{"a":\n', "x.jsonl:2: not JSON"),
        ("x.jsonl", "[1]\n", "one JSON object on every line"),
        ("x.jsonl", "[\n{}\n]\n", "of a list: jq -c"),
        ("x.parquet", "no parquet", "cannot be read as parquet"),
        ("x.csv", "seed,loss,tokens,params\r0,3.2,1e9,1e6\r0-2,3,1e9,1e6\r", "'0-2' is no run's"),
    ],
)
def test_a_file_that_is_none_is_refused_by_name(tmp_path, name, text, why):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=why):
        imported([read_given(str(tmp_path / name))])


def test_standard_input_is_csv_or_json_lines(monkeypatch):
    csv, lines = "loss,tokens,params\n3.2,1e9,1e6\n", '{"loss": 3.2, "tokens": 1e9, "params": 1e6}\n'
    for text in (csv, lines, "\ufeff" + csv, "\ufeff" + lines):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert imported([read_given("-")]).rows["loss"].tolist() == [3.2]
    for text, why in (("loss,\udce4\n", "no text in UTF-8"), ('[{"loss": 3}]', "jq -c")):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        with pytest.raises(DataError, match=why):
            read_given("-")


def test_a_pipe_is_read_as_standard_input_is(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    for content in (b"loss,tokens,params\n3.2,1e9,1e6\n", gzip.compress(b"loss\n")):
        threading.Thread(target=pipe.write_bytes, args=(content,), daemon=True).start()
        if content.startswith(b"loss"):
            assert read_given(str(pipe)).rows["loss"].tolist() == ["3.2"]
        else:
            with pytest.raises(DataError, match="a table in a pipe is CSV or JSON lines, not packed"):
                read_given(str(pipe))


def test_records_of_records_become_columns_and_lists_stay_text():
    table = table_of([{"a": {"b": 1, "c": [1, 2]}}, {"a": {"b": 2}, "d": None}])
    assert table["a.b"].tolist() == [1, 2]
    assert table["a.c"].tolist() == ["[1, 2]", None]


def test_tables_of_all_kinds_are_taken_with_finite_losses_or_refused():
    rng, taken = np.random.default_rng(1), []
    cells = ["", "nan", "3.2", "10.6M", "finished", "-", "1e400", "0x1", None, True, -1, {"a": 1}, "\0"]
    names = ["loss", "val/loss", "tokens", "params", "seed", "state", "_step", "batch_size", "id", "`"]
    usual = {"loss": "3.2", "tokens": "1e9", "params": "10.6M"}
    for _ in range(300):
        columns = rng.choice(names, rng.integers(1, len(names)), replace=False)
        odd = [{str(name): cells[rng.integers(len(cells))] for name in columns} for _ in range(4)]
        rows = [usual | row if rng.random() < 0.5 else usual for row in odd]
        with suppress(DataError):
            taken.append(imported([GivenTable("fuzz", table_of(rows))]).rows)
    assert 10 < len(taken) < 290
    for table in taken:
        assert np.isfinite(table.loc[table["status"] == "completed", "loss"]).all()


def test_half_a_surrogate_pair_becomes_a_question_mark():
    assert table_of([{"a": "\ud800x", "b": "über"}]).to_numpy().tolist() == [["?x", "über"]]
