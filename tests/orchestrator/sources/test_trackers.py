"""Runs as MLflow and TensorBoard keep them."""

import sqlite3

import numpy as np
import pytest

from mlflow_runs import mlflow_database, mlflow_folder
from scalevec.analysis.errors import DataError
from scalevec.orchestrator.sources.imports.given_tables import read_given
from scalevec.orchestrator.sources.imports.tidy_rows import imported


def test_a_folder_of_mlflow_gives_the_last_value_of_each_metric(tmp_path):
    folder = mlflow_folder(tmp_path, {"aa": ("2 3.1 100", "1 3.5 50"), "bb": ("1 3.4 50", "2 nan 100")})
    rows = imported([read_given(str(folder))]).rows
    assert rows["loss"].tolist()[0] == 3.1
    assert rows["status"].tolist() == ["completed", "diverged"]
    expected = [[10.6e6, 2e9, 1, 60.0]] * 2
    assert rows[["n_params", "n_tokens", "seed", "wall_s"]].to_numpy().tolist() == expected
    assert rows["run"].tolist() == ["aa", "bb"]


def test_the_steps_of_a_run_are_those_of_its_held_out_loss(tmp_path):
    other = "INSERT INTO latest_metrics VALUES ('aa', 'train_loss', 3, 1, 500, 0);"
    database, folder = (
        mlflow_database(tmp_path / "mlflow.db", other),
        mlflow_folder(tmp_path, {"aa": ("2 3 100",)}),
    )
    (folder / "1/aa/metrics/train_loss").write_text("3 2.9 500\n")
    for path in (database, folder):
        assert imported([read_given(str(path))]).rows["steps"].tolist() == [100]


def test_a_deleted_run_of_mlflow_is_left_alone_and_a_damaged_metric_is_named(tmp_path):
    folder = mlflow_folder(tmp_path, {"aa": ("2 3.1 100",), "bb": ("2 3.0 100",)})
    meta = folder / "1/bb/meta.yaml"
    meta.write_text(meta.read_text().replace("active", "deleted"))
    assert imported([read_given(str(folder))]).rows["run"].tolist() == ["aa"]
    (folder / "1/aa/metrics/val/loss").write_text("not a metric\n")
    with pytest.raises(DataError, match=r"metrics/val/loss: lines of time, value and step are needed"):
        read_given(str(folder))


def test_a_database_of_mlflow_is_read_without_being_changed(tmp_path):
    path = mlflow_database(tmp_path / "mlflow.db")
    before = path.read_bytes()
    table = imported([read_given(str(path))])
    expected = [["aa", 3.1, 10.6e6, 2e9, 60.0]]
    assert table.rows[["run", "loss", "n_params", "n_tokens", "wall_s"]].to_numpy().tolist() == expected
    assert any("1 failed" in note for note in table.notes)
    assert path.read_bytes() == before


def test_another_database_is_refused(tmp_path):
    sqlite3.connect(tmp_path / "other.db").close()
    with pytest.raises(DataError, match="no database of MLflow"):
        read_given(str(tmp_path / "other.db"))


def test_event_files_give_the_last_value_of_each_scalar_and_the_hyperparameters(tmp_path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    for seed in (0, 1):
        writer = SummaryWriter(str(tmp_path / f"muon/{seed}"))
        for step in range(3):
            writer.add_scalar("val/loss", 3.5 - step / 4, step * 100, new_style=bool(seed))
            writer.add_scalar("tokens", step * 1e9, step * 100)
        writer.add_hparams({"n_params": 1e6, "seed": seed, "optimizer": "muon"}, {}, run_name=".")
        writer.close()
    rows = imported([read_given(str(tmp_path))], ["arm=hparams.optimizer"]).rows
    assert rows["loss"].tolist() == [3.0, 3.0]
    assert rows["n_tokens"].tolist() == [np.float32(2e9)] * 2
    assert rows[["run", "seed", "arm"]].to_numpy().tolist() == [["muon/0", 0, "muon"], ["muon/1", 1, "muon"]]


def test_a_folder_of_neither_has_no_runs(tmp_path):
    with pytest.raises(DataError, match="has no rows or runs"):
        read_given(str(tmp_path))
