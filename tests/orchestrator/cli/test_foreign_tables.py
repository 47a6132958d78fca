"""Tables of other trackers and scores of models on the command line."""

import pandas as pd
import pytest


@pytest.fixture
def rows() -> pd.DataFrame:
    """Two arms on one power law, four sizes and two seeds each."""
    records = [
        {
            "arm": arm,
            "seed": seed,
            "n_params": n,
            "n_tokens": 16 * n,
            "loss": gain * 40 * (96 * n**2) ** -0.09 * noise,
        }
        for arm, gain in (("baseline", 1.0), ("new", 0.99))
        for n, spread in ((2e4, 1e-3), (4e4, -2e-3), (8e4, 2e-3), (1.6e5, -1e-3))
        for seed, noise in ((0, 1 + spread), (1, 1 - spread))
    ]
    return pd.DataFrame(records)


def test_scores_beside_a_table_are_compared_like_a_loss(rows, tmp_path, command):
    rows.to_csv(tmp_path / "r.csv", index=False)
    scores = rows[["arm", "seed", "n_params"]].assign(error=0.5 * rows["loss"])
    scores.to_csv(tmp_path / "scores.csv", index=False)
    answer = command(
        "compare", str(tmp_path / "r.csv"), "--join", str(tmp_path / "scores.csv"), "--y", "error"
    )
    assert answer.code == 0, answer.err
    assert answer.out.startswith("error: arm minus baseline")
    assert "new" in answer.out


def test_a_mapped_table_is_compared_as_it_is_and_what_was_taken_for_what_is_said(rows, tmp_path, command):
    rows.rename(columns={"loss": "val/loss", "arm": "config.method"}).to_csv(tmp_path / "w.csv", index=False)
    answer = command("compare", str(tmp_path / "w.csv"), "--map", "arm=config.method")
    assert answer.code == 0, answer.err
    assert "loss             `val/loss`" in answer.err


def test_import_writes_the_table_and_says_the_command_that_repeats_it(tmp_path, command):
    (tmp_path / "w.csv").write_text("val/loss,tokens,params\n3.2,1e9,10.6M\n")
    answer = command("import", str(tmp_path / "w.csv"), "-o", str(tmp_path / "t.csv"))
    assert answer.code == 0, answer.err
    assert "--map 'loss=`val/loss`' --map n_params=params --map n_tokens=tokens" in answer.err
    assert pd.read_csv(tmp_path / "t.csv")["n_params"].tolist() == [10.6e6]


def test_an_import_that_is_refused_writes_nothing(tmp_path, command):
    (tmp_path / "w.csv").write_text("train/loss,tokens\n3.2,many\n")
    answer = command("import", str(tmp_path / "w.csv"), "-o", str(tmp_path / "t.csv"))
    assert answer.code == 2
    assert "no loss of held-out text" in answer.err
    assert "no column of parameters" in answer.err
    assert not (tmp_path / "t.csv").exists()
