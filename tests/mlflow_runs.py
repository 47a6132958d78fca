"""A folder and a database as MLflow writes them."""

import sqlite3
from contextlib import closing
from pathlib import Path


def mlflow_folder(folder: Path, losses: dict[str, tuple[str, ...]], status: int = 3) -> Path:
    for name, lines in losses.items():
        run = folder / "mlruns" / "1" / name
        for part in ("metrics/val", "params"):
            (run / part).mkdir(parents=True)
        (run / "meta.yaml").write_text(
            f"run_id: {name}\nrun_name: {name}-x\nstatus: {status}\nlifecycle_stage: active\n"
            "start_time: 1000\nend_time: 61000\n"
        )
        (run / "metrics/val/loss").write_text("".join(f"{line}\n" for line in lines))
        (run / "metrics/tokens").write_text("3 2e9 100\n")
        (run / "params/n_params").write_text("10.6M")
        (run / "params/seed").write_text("1")
    (folder / "mlruns/1/meta.yaml").write_text("experiment_id: '1'\nname: sizes\n")
    return folder / "mlruns"


def mlflow_database(path: Path, changes: str = "") -> Path:
    """Such a database, after these ``changes`` in SQL."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE runs (run_uuid, name, status, start_time, end_time, lifecycle_stage);
            CREATE TABLE latest_metrics (run_uuid, key, value, timestamp, step, is_nan);
            CREATE TABLE params (run_uuid, key, value);
            INSERT INTO runs VALUES ('aa', 'x', 'FINISHED', 1000, 61000, 'active'),
              ('bb', 'y', 'FAILED', 1000, NULL, 'active'), ('cc', 'z', 'FINISHED', 1000, 2000, 'deleted');
            INSERT INTO latest_metrics VALUES ('aa', 'val_loss', 3.1, 1, 100, 0),
              ('aa', 'tokens', 2e9, 1, 100, 0), ('bb', 'val_loss', 0, 1, 70, 1);
            INSERT INTO params VALUES ('aa', 'n_params', '10.6M'), ('bb', 'n_params', '10.6M');
            """
            + changes
        )
        database.commit()
    return path
