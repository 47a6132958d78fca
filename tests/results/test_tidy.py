"""The tidy table: which rows and columns, of which types, in which order."""

import io
import json

import numpy as np
import pandas as pd
import pytest

from scalevec.results.columns import COLUMNS
from scalevec.results.tidy import UnwritableTableError, tidy_table, write_table

CONTRACT = [
    "trial_id", "sweep", "arm", "stage", "rung", "n_params", "n_params_embedding",
    "n_params_scale_vectors", "n_params_total", "n_params_active", "n_tokens", "tokens_per_parameter",
    "epochs", "flops", "flops_counted", "loss", "loss_validation", "loss_initial", "loss_blocks",
    "block_tokens", "seed", "stream", "identity_version", "cluster", "optimizer", "schedule",
    "architecture", "corpus", "learning_rate", "lr_status", "carried_check", "status", "cause",
    "micro_batch", "world_size", "steps", "wall_s", "tokens_per_s", "step_s_median", "mfu", "data_s",
    "checkpoints_s", "evaluation_s", "planned_s", "device", "arithmetic", "resumes", "precision",
    "vector_branches", "vector_placement", "vector_reparameterization", "vector_decay", "vector_gain",
    "matrix_decay", "peak_memory_bytes", "allocated_bytes", "cpu_model", "cpu_capability", "threads",
    "gpu", "cuda", "cudnn", "torch_version", "commit", "local_changes",
]  # fmt: skip
STRATEGY = {"branches": "shared", "placement": "dual", "reparameterization": "or", "weight_decay": "input"}
SEMANTIC = {
    "model": {"architecture": "llama", "shape": {"width": 64}, "scale_vectors": STRATEGY},
    "optimizer": {"name": "adamw", "learning_rate": 0.016, "weight_decay": 0.1},
    "schedule": {"name": "cosine"},
    "corpus": "f" * 8,
    "tokens": 400_000,
    "seed": 2**62 + 1,
    "precision": "float32",
}


def row(trial_id: str = "a", state: str = "completed", **measured) -> dict:
    record = {"trial_id": trial_id, "state": state, "cause": None, "semantic": SEMANTIC, "descriptive": {}}
    return record | measured


def member(trial_id: str = "a", arm: str = "baseline", **more) -> dict:
    cell = {"arm": arm, "stage": "comparison", "rung": "tiny", "lr_status": "tuned"}
    return {"trial_id": trial_id, **cell, **more}


def test_the_columns_are_those_agreed_in_that_order_then_the_settings():
    members = [member(setting={"weight_decay": 0.1}), member("b", setting={"batch": 8})]
    assert list(tidy_table([], members, "s").columns) == [*CONTRACT, "batch", "weight_decay"]


def test_a_completed_trial_is_one_whole_row():
    measured = {"loss": 1.2345678901234567, "n_params": 25_000, "flops": 6e25, "steps": 390, "device": "cpu"}
    (got,) = tidy_table([row(**measured)], [member(tokens_per_parameter=16)], "s").to_dict("records")
    names = {"trial_id": "a", "sweep": "s", "arm": "baseline", "stage": "comparison", "rung": "tiny"}
    planned = {"n_tokens": 400_000, "tokens_per_parameter": 16.0, "seed": 2**62 + 1, "corpus": "f" * 8}
    how = {"optimizer": "adamw", "schedule": "cosine", "architecture": "llama", "precision": "float32"}
    rate = {"learning_rate": 0.016, "lr_status": "tuned", "status": "completed", "cluster": "a"}
    vectors = {"vector_branches": "shared", "vector_placement": "dual", "vector_reparameterization": "or"}
    decay = {"vector_decay": "input", "vector_gain": "g", "matrix_decay": 0.1}
    expected = measured | names | planned | how | rate | vectors | decay
    assert {name: got[name] for name in expected} == expected


def test_a_row_has_the_stream_and_version_of_its_trial_and_the_losses_of_blocks():
    fields = {**SEMANTIC, "stream": "ab" * 32, "identity_version": 2}
    blocks = {"loss_blocks": "[5.25, 5.5]", "block_tokens": "[128, 100]"}
    (got,) = tidy_table([{**row(**blocks), "semantic": fields}], [member()], "s").to_dict("records")
    assert {name: got[name] for name in blocks} == blocks
    assert (got["stream"], got["identity_version"]) == ("ab" * 32, 2)


@pytest.mark.parametrize("state", ["diverged", "failed", "running"])
def test_a_trial_that_is_not_completed_has_no_loss(state):
    frame = tidy_table([row(state=state, loss=3.0, loss_initial=7.0)], [member()], "s")
    assert frame["loss"].isna().all()
    assert frame["loss_initial"].tolist() == [7.0]
    assert frame["status"].tolist() == [state]


def test_a_member_that_the_index_does_not_know_is_pending():
    frame = tidy_table([], [member()], "s")
    assert frame["status"].tolist() == ["pending"]
    assert frame["loss"].isna().all()
    assert frame["cluster"].tolist() == ["a"]


def test_planned_figures_stand_in_until_they_are_measured():
    planned = {**row(state="running", n_params=None), "descriptive": {"n_params": 25_000}}
    assert tidy_table([planned], [member()], "s")["n_params"].tolist() == [25_000]


def test_a_trial_of_two_arms_has_two_rows():
    frame = tidy_table([row(loss=1.0)], [member(arm="iwd"), member(arm="all")], "s")
    assert frame["arm"].tolist() == ["all", "iwd"]
    assert frame["loss"].tolist() == [1.0, 1.0]


def test_types_do_not_depend_on_the_values():
    full = tidy_table([row(loss=1.0, n_params=5, device="cpu")], [member()], "s")
    empty = tidy_table([], [], "s")
    assert full.dtypes.to_dict() == empty.dtypes.to_dict() == tidy_table([], [member()], "s").dtypes.to_dict()
    assert full.dtypes["n_params"] == pd.Int64Dtype()
    assert full.dtypes["loss"] == np.float64


def test_settings_keep_their_kind():
    setting = {"flag": True, "count": 3, "rate": 1, "shape": [1, 2], "word": "x", "mixed": 1}
    other = {"flag": None, "rate": 0.5, "mixed": "one"}
    frame = tidy_table([], [member("a", setting=setting), member("b", setting=other)], "s")
    kinds = {name: str(frame[name].dtype) for name in setting}
    assert kinds == {
        "flag": "boolean",
        "count": "Int64",
        "rate": "float64",
        **dict.fromkeys(("shape", "word", "mixed"), "str"),
    }
    assert frame["shape"].tolist()[0] == "[1, 2]"


def test_a_setting_never_replaces_a_standard_column():
    frame = tidy_table([row()], [member(setting={"learning_rate": 9.0, "seed": 9})], "s")
    assert list(frame.columns) == list(COLUMNS)
    assert frame["learning_rate"].tolist() == [0.016]


def test_a_field_of_a_trainer_that_is_called_like_a_later_column_stands_beside_it():
    fields = {"mfu": 7.0, "dropout": 0.1, "width": 8}
    table = tidy_table([row()], [member(setting={"mfu": 7.0, "width": 8}, fields=fields)], "s")
    assert (table["field_mfu"][0], table["field_dropout"][0], table["width"][0]) == (7.0, 0.1, 8)
    assert table["mfu"][0] != 7.0
    assert "field_width" not in table


def test_the_order_of_members_and_rows_does_not_matter():
    rows = [row(name, n_params=n) for name, n in [("a", 30), ("b", 4), ("c", None)]]
    members = [member(name, arm) for name in "abc" for arm in ("x", "y")]
    tidy = tidy_table(rows, members, "s")
    pd.testing.assert_frame_equal(tidy, tidy_table(rows[::-1], members[::-1], "s"))
    assert tidy["trial_id"].tolist() == ["b", "a", "c"] * 2


@pytest.fixture
def frame() -> pd.DataFrame:
    members = [member("a", setting={"flag": True}), member("b", setting={})]
    return tidy_table([row(loss=1.2345678901234567, n_params=2**53 + 1)], members, "s")


def written(frame: pd.DataFrame, form: str) -> bytes:
    stream = io.BytesIO()
    write_table(frame, form, stream)
    return stream.getvalue()


def test_csv_keeps_every_digit(frame):
    read = pd.read_csv(io.BytesIO(written(frame, "csv")), dtype={"n_params": "Int64", "seed": "Int64"})
    assert list(read.columns) == list(frame.columns)
    for name in ("loss", "n_params", "seed", "trial_id", "status"):
        assert read[name].dropna().tolist() == frame[name].dropna().tolist()


def test_parquet_reads_back_equal(frame):
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(written(frame, "parquet"))), frame)


def test_json_is_a_list_of_objects_with_null_for_what_is_missing(frame):
    first, second = json.loads(written(frame, "json"))
    assert list(first) == list(frame.columns)
    assert (first["loss"], first["n_params"], first["flag"]) == (1.2345678901234567, 2**53 + 1, True)
    assert (second["loss"], second["n_params"], second["flag"]) == (None, None, None)


def test_json_has_the_blocks_as_lists():
    table = tidy_table([row(loss_blocks="[5.25, 5.5]")], [member()], "s")
    (record,) = json.loads(written(table, "json"))
    assert (record["loss_blocks"], record["block_tokens"]) == ([5.25, 5.5], None)


def test_json_holds_dates_lists_and_large_numbers_of_a_table_from_elsewhere():
    table = pd.DataFrame({"when": pd.to_datetime(["2024-01-02"]), "took": pd.to_timedelta([1], "h")})
    table["counts"] = [np.array([1, 2])]
    table["large"] = np.array([2**63 + 1], dtype=np.uint64)
    [row] = json.loads(written(table, "json"))
    assert row["when"].startswith("2024-01-02")
    assert (row["counts"], row["large"]) == ([1, 2], 2**63 + 1)


@pytest.mark.parametrize(
    ("form", "values", "message"),
    [("json", [float("inf")], "a row holds an infinite number"), ("parquet", [1, "a"], "as Parquet: ")],
)
def test_values_that_a_format_has_not_are_refused(form: str, values: list, message: str):
    with pytest.raises(UnwritableTableError, match=message):
        write_table(pd.DataFrame({"loss": values}), form, io.BytesIO())
