"""The content shows what a file is: a table is read whatever it is called, all else is answered."""

import bz2
import gzip
import json

import pandas as pd
import pytest

from scalevec.orchestrator.errors import Exit
from support import assert_refused, succeeded

RUNS = [(arm, seed, loss + seed / 100) for arm, loss in (("a", 3.5), ("b", 3.4)) for seed in range(3)]
HEADER = "arm,seed,n_params,n_tokens,loss\n"
ROWS = HEADER + "".join(f"{arm},{seed},1e6,2e7,{loss}\n" for arm, seed, loss in RUNS)
TABLES = {
    "DATA.CSV": ROWS.encode(),
    "t.txt": ROWS.encode(),
    "results": ROWS.encode(),
    "tabs.txt": ROWS.replace(",", "\t").encode(),
    "z.bz2": bz2.compress(ROWS.encode()),
    "records.json": b'{"arm": "a", "loss": 3, "n_params": 1e6, "n_tokens": 2e7}\n' * 2,
}
WANDB = "method: grid\nmetric: {name: loss}\nparameters:\n  lr: {values: [1, 2]}\n"
SCRIPT = "scalevec init --from own-trainer"
LOG_LINES = (
    "step 1 loss 3\n",
    " [2024-01-01 10:00:00] iteration       10/  500000 | global batch size:   512 | lm loss: 1.0E+01 |\n",
    "[rank0]:2024-12-02 10:00:00,000 - root - INFO - step:  1  loss: 12.2  wps: 1,000  mfu: 1.0%\n",
    "iter 0: loss 10.9543, time 4012.43ms, mfu -100.00%\n",
    "2024-01-01 10:00:00 | INFO | valid | epoch 001 | valid on subset | loss 9.1 | ppl 548\n",
    "{'eval_loss': 2.2, 'eval_runtime': 3.0, 'epoch': 0.1}\n",
)
OTHERS = {
    "scan.yaml": (WANDB, "with the keys method, metric, parameters, and no sweep file", SCRIPT[:13]),
    "scan.txt": (WANDB, "with the keys method, metric, parameters, and no sweep file", SCRIPT[:13]),
    "tune.yml": ("ppo:\n  run: PPO\n  stop: {a: 1}\n", "with the keys ppo, and no sweep file", SCRIPT[:13]),
    "snake.yaml": ("samples: {A: a.fq}\n", "with the keys samples, and no sweep file", SCRIPT[:13]),
    "run.ipynb": (json.dumps({"cells": [], "nbformat": 4}), "a notebook", ".parquet"),
    "rows.json": (json.dumps([{"arm": "a"}]), "a JSON file", "one object on each line"),
    "one.json": (json.dumps({"loss": 3.5}, indent=2), "a JSON file", "one object on each line"),
    "wandb-summary.json": (json.dumps({"_runtime": 3}), "a JSON file of W&B", "as CSV"),
    "sheet.xlsx": ("PKnot really", "an Excel file", ".csv"),
    "plain.xlsx": ("PK\x03\x04\x14\0docProps/app.xml", "an Excel file", ".csv"),
    "sheet": ("PK\x03\x04\x14\0[Content_Types].xml", "an Excel file", ".csv"),
    "rows.csv.zip": ("PK\x03\x04\x14\0rows.csv", "a ZIP archive", "unpack it"),
    "frame.csv": (b"\x80\x04\x95\0\0", "a pickle", ".parquet"),
    "plot.png": (b"\x89PNG\r\n\x1a\n\0", "an image", ".csv"),
    "paper": (b"%PDF-1.4\n\xe2\0", "a PDF file", ".csv"),
    "plot.gz": (gzip.compress(b"\x89PNG\r\n\x1a\n\0"), "an image", ".csv"),
    "words.gz": (gzip.compress(b"two\nlines\n"), "packed, and no table", "unpack it"),
    "train.py": ("import torch\n", "a Python script", SCRIPT),
    "titan.toml": ('# a job\n[model]\nname = "llama3"\n', "a TOML file", SCRIPT[:13]),
    "ray.yaml": ("tune: {samples: 3}\nlr: 1\n", "with the keys tune, lr, and no sweep file", SCRIPT[:13]),
    "job.slurm": ("#!/bin/bash\n#SBATCH -n 1\nsrun train\n", "a script", SCRIPT),
    "words.txt": ("first this\nthen that, and more\n", "text, neither a sweep file nor a table", ".csv"),
    **{f"{number}.log": (line * 2, "a training log", ".jsonl") for number, line in enumerate(LOG_LINES)},
}
COMMANDS = (("compare",), ("fit",), ("plan",), ("run",), ("submit", "--executor", "slurm"), ("import",))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_by_what_it_holds_whatever_it_is_called(name, scalevec, tmp_path):
    (tmp_path / name).write_bytes(TABLES[name])
    assert succeeded(scalevec("import", name)).stdout.startswith("loss,n_params,n_tokens,arm,")
    results = scalevec("fit", name, "--json")
    assert "not a sweep file" not in results.stderr
    assert "YAML" not in results.stderr


def test_a_parquet_file_of_another_name_is_read(scalevec, tmp_path):
    table = pd.DataFrame({"arm": ["a", "b"], "loss": [3.0, 2.9], "n_params": 1e6, "n_tokens": 2e7})
    table.to_parquet(tmp_path / "kept.dat")
    assert scalevec("import", "kept.dat").returncode == Exit.DONE


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_neither_sweep_nor_table_is_answered_by_what_it_is_and_what_to_do(name, scalevec, tmp_path):
    content, what, remedy = OTHERS[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode("latin-1"))
    for command in COMMANDS:
        done = scalevec(*command[:1], name, *command[1:])
        first, second = done.stderr.splitlines()
        assert done.returncode == Exit.INVALID_INPUT
        assert what in first
        assert remedy in second
        assert max(len(first), len(second)) <= 160


def test_a_sweep_file_whose_remarks_show_what_a_script_prints_is_no_log(scalevec, tmp_path):
    remarks = "# step 100: loss 3.5\n# step 200: loss 3.25\n"
    (tmp_path / "own.yaml").write_text(remarks + "name: own\nladder: []\narms: {}\n")
    assert "training log" not in scalevec("plan", "own.yaml").stderr


@pytest.mark.parametrize("command", ["plan", "run", "status", "cancel"])
def test_a_command_of_sweeps_names_those_that_read_a_table(command, scalevec, tmp_path):
    (tmp_path / "DATA.CSV").write_text(ROWS)
    done = scalevec(command, "DATA.CSV")
    words = "DATA.CSV is a table of results\nscalevec compare DATA.CSV reads it"
    assert_refused(done, Exit.INVALID_INPUT, words)


def test_a_folder_of_wandb_is_answered_by_how_its_runs_are_exported(scalevec, tmp_path):
    (tmp_path / "wandb/run-20260101_000000-ab12/files").mkdir(parents=True)
    for command in ("import", "compare", "plan"):
        words = "wandb is a folder of W&B\nexport the table of runs from W&B as CSV"
        assert_refused(scalevec(command, "wandb"), Exit.INVALID_INPUT, words)


def test_a_sweep_file_is_read_whatever_it_is_called(scalevec, tmp_path):
    (tmp_path / "scan.txt").write_text("name: scan\nladder: [{name: tiny-25k, layers: 0}]\n")
    assert "scan.txt:2: ladder[0].layers" in scalevec("plan", "scan.txt").stderr
