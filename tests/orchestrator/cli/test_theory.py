"""What was measured along runs, summarised by arm."""

import pandas as pd
import pytest

from scalevec.orchestrator.commands.analyse.theory import theory_summary, theory_text


def long_table(**changes) -> pd.DataFrame:
    """Two trials of each of two arms, three steps, two layers of one kind; values that can be reckoned."""
    rows = []
    for arm, level in (("baseline", 1.0), ("unified", 2.0)):
        for seed in (0, 1):
            for step in (1, 50, 100):
                base = {"trial_id": f"{arm}{seed}", "arm": arm, "rung": "a", "optimizer": "sgd", "seed": seed}
                base |= {"schedule": "cosine", "step": step, "tokens": 10 * step, **changes}
                for layer in (0, 1):
                    values = {
                        "relative_error": level * 0.01 * (1 + layer),
                        "eigenvalue_min": 0.5 * level,
                        "eigenvalue_median": level,
                        "eigenvalue_max": 10.0 * level + step,
                        "conserved_drift": step * 0.001 * level,
                    }
                    rows += [
                        {**base, "kind": "query", "quantity": name, "layer": layer, "value": value}
                        for name, value in values.items()
                    ]
                base |= {"kind": "", "quantity": "sharpness", "layer": 0}
                rows.append({**base, "value": level * step + seed})
    return pd.DataFrame(rows)


def test_each_quantity_is_summed_up_in_its_own_way():
    baseline, unified = theory_summary(long_table())
    assert (baseline["arm"], baseline["trials"], baseline["steps"]) == ("baseline", 2, 3)
    assert unified["arm"] == "unified"
    expected = {"relative_error": 0.03, "conserved_drift": 0.2, "condition": 70}
    expected |= {"eigenvalue_min": 1, "eigenvalue_median": 2, "eigenvalue_max": 120}
    assert {name: unified[name] for name in expected} == pytest.approx(expected)
    assert baseline["sharpness_steps"] == [1, 50, 100]
    assert [baseline[f"sharpness_{when}"] for when in ("first", "middle", "last")] == [1.5, 50.5, 100.5]


def test_what_did_not_converge_is_left_out_and_counted():
    table = long_table()
    table.loc[(table["quantity"] == "sharpness") & (table["step"] == 100), "value"] = None
    table.loc[(table["quantity"] == "eigenvalue_max") & (table["step"] == 1), "value"] = None
    baseline = theory_summary(table)[0]
    assert baseline["sharpness_last"] is None
    assert baseline["sharpness_not_converged"] == 2
    assert baseline["eigenvalues_not_converged"] == 4
    text = theory_text(theory_summary(table))
    assert "4 values of the sharpness did not converge" in text
    assert "8 greatest eigenvalues did not converge" in text


def test_further_settings_tell_groups_apart():
    table = pd.concat([long_table(weight_decay=0.0), long_table(weight_decay=0.1)])
    rows = theory_summary(table)
    assert [row["setting"] for row in rows[:2]] == [{"weight_decay": "0.0"}] * 2
    assert len(rows) == 4
    assert "weight_decay" in theory_text(rows).splitlines()[0]


def test_arms_of_one_optimizer_stand_together():
    rows = theory_summary(pd.concat([long_table(optimizer=name) for name in ("sgd", "adamw")]))
    places = [(row["optimizer"], row["arm"]) for row in rows]
    assert places == [(name, arm) for name in ("adamw", "sgd") for arm in ("baseline", "unified")]
