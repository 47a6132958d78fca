"""``scalevec predict``: what its options take, what it prints, what it refuses."""

import json

import numpy as np
import pandas as pd
import pytest

from support import succeeded


@pytest.fixture
def table(tmp_path):
    """Hoffmann's law on four sizes by three token budgets, as t.csv."""
    n, d = (a.ravel() for a in np.meshgrid([1e7, 5e7, 2e8, 1e9], [1e8, 1.3e9, 1e10]))
    rows = pd.DataFrame({"n_params": n, "n_tokens": d, "loss": 1.69 + 406.4 * n**-0.34 + 410.7 * d**-0.28})
    rows.assign(width=np.sqrt(n)).to_csv(tmp_path / "t.csv", index=False)


@pytest.mark.usefixtures("table")
def test_points_come_from_the_command_line_a_table_and_the_rungs_of_a_sweep(command, tmp_path):
    pd.DataFrame({"N": [2e9], "D": [4e10], "note": ["later"]}).to_csv(tmp_path / "at.csv", index=False)
    given = ("--at", "N=1e9,D=2e10", "--at", "at.csv", "--sweep", "quickstart")
    words = ("predict", "t.csv", "--law", "chinchilla", "--bootstrap", "0", *given, "--json")
    [arm] = json.loads(succeeded(command(*words)).stdout)
    shown = arm["points"]
    assert [point["at"] for point in shown[:2]] == [{"N": 1e9, "D": 2e10}, {"N": 2e9, "D": 4e10}]
    assert shown[0]["value"] == pytest.approx(1.69 + 406.4 * 1e9**-0.34 + 410.7 * 2e10**-0.28)
    assert [point["name"] for point in shown[2:]] == ["tiny-25k", "tiny-55k", "tiny-83k", "tiny-150k"]


@pytest.mark.usefixtures("table")
def test_every_number_has_its_distance_from_the_data_and_the_hold_out_beside_it(command):
    given = ("--at", "N=1e10,D=1e11", "--flops", "1e22", "--cluster", "row")
    done = succeeded(command("predict", "t.csv", "--law", "chinchilla", "--bootstrap", "0", *given))
    assert "+2.00 decades of C" in done.stdout
    assert "hold-out (the largest rung" in done.stdout
    assert "C                     1e+22" in done.stdout


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--at", "M=3"], "--at M=3: a variable is 'M'; allowed: C, D, N, loss, n_params, n_tokens, width"),
        (["--at", "N=1e9,D=x"], "--at N=1e9,D=x: D is 'x', no number; allowed: VARIABLE=NUMBER"),
        (["--at", "N=1e9,N=1e9"], "'N=1e9' is no new variable"),
        (["--at", "N=1e9"], "a point needs D, which law chinchilla reads; given: N"),
        (["--at", "N=1e9,D=-5"], "point 1: D is -5.0; allowed: finite numbers above zero"),
        (["--at", "absent.csv"], "absent.csv is not a file"),
        (["--sweep", "absent.yaml"], "absent.yaml: no such file"),
        (["--flops", "nan"], "point 1: C is nan; allowed: finite numbers above zero"),
        (["--flops", "1e22", "--law", "power"], "the best size of a budget needs a law in N and D"),
    ],
)
def test_what_is_no_point_and_no_budget_is_refused(command, options, message):
    law = [] if "--law" in options else ["--law", "chinchilla"]
    done = command("predict", "t.csv", *law, "--bootstrap", "0", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
