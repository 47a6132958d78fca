"""Tables of other trackers and scores of models on the command line."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from scalevec import analysis
from support import assert_refused, succeeded


def test_import_writes_the_table_and_says_the_command_that_repeats_it(tmp_path, command):
    (tmp_path / "w.csv").write_text("val/loss,tokens,params\n3.2,1e9,10.6M\n")
    answer = succeeded(command("import", str(tmp_path / "w.csv"), "-o", str(tmp_path / "t.csv")))
    assert "--map 'loss=`val/loss`' --map n_params=params --map n_tokens=tokens" in answer.stderr
    assert pd.read_csv(tmp_path / "t.csv")["n_params"].tolist() == [10.6e6]


def test_an_import_that_is_refused_writes_nothing(tmp_path, command):
    (tmp_path / "w.csv").write_text("train/loss,tokens\n3.2,many\n")
    answer = command("import", str(tmp_path / "w.csv"), "-o", str(tmp_path / "t.csv"))
    assert_refused(answer, 2, "no loss of held-out text", "no column of parameters")
    assert not (tmp_path / "t.csv").exists()


def dirty_export(rng: np.random.Generator) -> pd.DataFrame:
    """Sixty runs of two optimizers at five sizes and six seeds, as a tracker exports them."""
    rows = []
    for arm, gain in (("adamw", 1.0), ("muon", 1.2)):
        for size in (10.6e6, 21.2e6, 42.5e6, 85e6, 170e6):
            for seed in range(6):
                steps = round(20 * size / 65_536)
                loss = 40 * (gain * 6 * size * steps * 65_536) ** -0.07 * math.exp(rng.normal(0, 2e-3))
                rows.append(
                    {
                        "Name": f"{arm}-{size:.3g}-{seed}",
                        "State": "finished",
                        "config.optimizer": arm,
                        "config.seed": str(seed),
                        "summary.val/loss": f"{loss:.5f}",
                        "summary.train/loss": f"{loss - 0.05:.5f}",
                        "config.params": f"{size / 1e6:g}M" if seed % 2 else f"{size:,.0f}",
                        "_step": str(steps),
                        "config.batch_tokens": "65,536",
                    }
                )
    table = pd.DataFrame(rows)
    table.loc[[3, 40], "State"] = "crashed"
    table.loc[[3, 40], "summary.val/loss"] = ""
    table.loc[17, "summary.val/loss"] = "NaN"
    table.loc[25, "config.seed"] = ""
    return table


def in_words_of_another_project(export: pd.DataFrame) -> pd.DataFrame:
    """The same columns as another project calls them, with tokens in the place of steps."""
    names = {
        "config.optimizer": "optim",
        "config.seed": "random_seed",
        "summary.val/loss": "eval_loss",
        "summary.train/loss": "train_loss",
        "config.params": "num_parameters",
    }
    tokens = (export["_step"].astype(int) * 65_536).map("{:,}".format)
    return export.rename(columns=names).drop(columns=["_step", "config.batch_tokens"]).assign(tokens=tokens)


def by_hand(export: pd.DataFrame) -> pd.DataFrame:
    """What a person would write of the export in pandas."""
    clean = export[export["State"] != "crashed"]
    words = clean["config.params"]
    millions = words.str.rstrip("M").str.replace(",", "").astype(float)
    return pd.DataFrame(
        {
            "arm": clean["config.optimizer"],
            "n_params": millions.where(~words.str.endswith("M"), millions * 1e6),
            "n_tokens": clean["_step"].astype(float) * 65_536,
            "seed": pd.to_numeric(clean["config.seed"]).astype("Int64"),
            "loss": pd.to_numeric(clean["summary.val/loss"], errors="coerce"),
            "status": np.where(clean["summary.val/loss"] == "NaN", "diverged", "completed"),
        }
    )


def test_sixty_runs_of_two_projects_with_the_usual_dirt_come_to_a_verdict_in_two_commands(tmp_path, command):
    export = dirty_export(np.random.default_rng(0))
    is_first = export["config.optimizer"] == "adamw"
    export[is_first].to_csv(tmp_path / "a.csv", index=False)
    in_words_of_another_project(export[~is_first]).to_csv(tmp_path / "b.csv", index=False)
    arms = ("--map", "arm=config.optimizer", "--map", "arm=optim")
    succeeded(command("import", "a.csv", "b.csv", *arms, "-o", "runs.csv"))
    answer = succeeded(command("compare", "runs.csv", "--reference", "adamw", "--bootstrap", 200, "--json"))
    [ours] = json.loads(answer.stdout)

    table = by_hand(export)
    options = {"reference": "adamw", "n_convention": "as-given", "unit": "loss", "bootstrap": 200}
    theirs = analysis.compare(table, **options).only
    assert ours["verdict"] == theirs.verdict == "better"
    assert ours["pairs"] == theirs.pairs
    assert ours["loss_difference"]["interval"] == pytest.approx(theirs.loss_difference.interval, rel=1e-6)
    losses = table[table.seed.notna()].pivot_table("loss", ["n_params", "seed"], "arm").dropna()
    differences = (losses["muon"] - losses["adamw"]).groupby("n_params").mean()
    assert ours["pairs"] == len(losses)
    assert ours["loss_difference"]["mean"] == pytest.approx(differences.mean(), rel=1e-6)
