"""The state of sweeps in any number of columns and lines."""

from collections import Counter

import pytest
from rich.cells import cell_len

from scalevec.orchestrator.commands.look.screen import screen

RUNGS = ("tiny-25k", "tiny-55k", "tiny-83k", "tiny-150k")


def cell(rung, arm, *, loss=None, stage="comparison", setting=None, **states) -> dict:
    of = {"stage": stage, "rung": rung, "n_params": None, "setting": setting or {}, "arm": arm}
    return of | {"trials": sum(states.values()), "states": states, "loss": loss}


def status_of(*cells, **changes) -> dict:
    states = dict(sum((Counter(each["states"]) for each in cells), Counter()))
    return {
        "sweep": "small",
        "trials": sum(states.values()),
        "states": states,
        "to_come": 0,
        "stage": "comparison",
        **{name: [] for name in ("running", "waiting", "failed", "chosen")},
        "seconds_left": 600.0,
        "plan": None,
        "cost": {"unit": "core hours", "spent": 0.0, "left": None},
        "cells": list(cells),
        "queue": {"jobs": {}, "controller": None, "unknown": None},
        "problems": {},
        "owned": True,
        **changes,
    }


def lines_of(status, width=80, height=None) -> list[str]:
    return screen([status], width, height).plain.split("\n")


def failure(number, error="RuntimeError: boom") -> dict:
    label = f"none tiny-25k seed {number}"
    trial_id = f"{number:064x}"[::-1]
    why = {"error": error, "reason": "the same error twice", "cause": "error"}
    return {"trial_id": trial_id, "label": label, **why}


def waiting(reason, trials) -> dict:
    return {"reason": reason, "trials": trials, "jobs": [], "remedy": ""}


def test_settings_tell_the_rows_of_a_rung_apart_whole():
    settings = [
        {"weight_decay": decay, "embedding_scale": scale, "norm_gain": gain}
        for decay in ("0.1", "0.3")
        for scale, gain in (("none", "g"), ("sqrt-width", "1+w"))
    ]
    cells = [cell("tiny-25k", "iwd", setting=each, completed=2) for each in settings]
    shown = screen([status_of(*cells)], 80)
    words = " ".join(shown.plain.split())
    for each in settings:
        assert f"tiny-25k {' '.join(f'{name} {value}' for name, value in each.items())}" in words


def test_more_settings_than_fit_share_a_row_of_each_rung_with_the_lowest_of_their_means():
    grid = [(rung, number) for rung in RUNGS[:2] for number in range(40)]
    cells = [cell(rung, "none", setting={"a": f"{of}"}, completed=2, loss=3.0 + of) for rung, of in grid]
    rows = [line.split() for line in lines_of(status_of(*cells)) if "80/80" in line]
    assert rows == [[f"{rung},", "40", "settings", "80/80", "3.0000"] for rung in RUNGS[:2]]


def test_rates_of_several_settings_are_told_as_a_range_and_those_of_one_by_rung():
    def choice(rung, setting, chosen, status="tuned") -> dict:
        known = {"arm": "none", "rung": rung, "n_params": int(rung[5:-1]), "setting": setting}
        return known | {"field": "learning_rate", "chosen": chosen, "status": status}

    by_rung = [choice("tiny-25k", {}, 0.02), choice("tiny-55k", {}, 0.01, "censored")]
    several = [*by_rung, choice("tiny-25k", {"optimizer": "muon"}, 0.04)]
    ranges = {"0.02, 0.01 (edge of the grid)": by_rung, "0.01 to 0.04 (1 at the edge": several}
    for told, chosen in ranges.items():
        shown = "\n".join(lines_of(status_of(cell("tiny-25k", "none", completed=1), chosen=chosen), 200))
        assert f"learning rate at tiny-25k, tiny-55k: none {told}" in shown


def test_rungs_stand_by_arms_with_counts_and_mean_losses():
    lines = lines_of(
        status_of(
            cell("tiny-25k", "baseline", completed=2, loss=4.44692),
            cell("tiny-25k", "none", completed=1, running=1, loss=4.4826),
            cell("tiny-55k", "baseline", pending=2),
            cell("tiny-55k", "none", diverged=1, failed=1),
        )
    )
    expected = "small: comparison, 4 of 8 trials done (1 diverged), 1 running, 2 waiting, 1 failed"
    assert " ".join(lines[:2]) == expected
    assert [line.split() for line in lines[-4:]] == [
        ["baseline", "none"],
        ["tiny-25k", "2/2", "4.4469", "1/2", "r1", "4.4826"],
        ["tiny-55k", "0/2", "1/2", "f1", "d1"],
        ["done/all,", "r", "running,", "f", "failed,", "d", "diverged,", "mean", "test", "loss"],
    ]


def test_the_answer_comes_first_then_who_runs_it_and_what_it_costs():
    plan = {"planned_s": 3600, "share_done": 0.25, "pace": 1.5}
    status = status_of(
        cell("tiny-25k", "none", completed=1, pending=2, failed=1),
        plan=plan,
        cost={"unit": "GPU hours", "spent": 1.234, "left": 3.7},
        seconds_left=4000.0,
        failed=[failure(7)],
        waiting=[waiting("for a free slot", 2)],
    )
    lines = [line.rstrip() for line in lines_of(status, 100, 24)]
    assert lines[:7] == [
        "small: comparison, 1 of 4 trials done, 2 waiting, 1 failed",
        "left     about 1 h 6 min",
        "failed   70000000  none tiny-25k seed 7: RuntimeError: boom (the same error twice)",
        "waiting  2 for a free slot",
        "run by   a scheduler",
        "work     [#####---------------] 25% of 1 h 0 min planned; so far 1.5 x that",
        "         1.23 GPU hours spent, about 3.7 left",
    ]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 10), (20, 3)])
@pytest.mark.parametrize(
    "names", [["none"], [f"an arm with a long name, the {n}th of them: ärm 模型" for n in range(18)]]
)
def test_whatever_the_sweep_the_screen_is_not_left(width, height, names):
    cells = [cell(rung, name, completed=1, running=1, failed=1, loss=4.1) for rung in RUNGS for name in names]
    status = status_of(
        *cells,
        failed=[failure(number, "RuntimeError: " + "a long story " * 20) for number in range(9)],
        waiting=[waiting(f"for reason {number}", 3) for number in range(9)],
    )
    lines = lines_of(status, width, height)
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width


def test_arms_that_do_not_fit_beside_the_others_follow_below():
    cells = [cell(rung, f"arm-{n}", completed=1, loss=4 + n / 100) for rung in RUNGS for n in range(12)]
    text = screen([status_of(*cells)], 80, 24).plain
    assert all(f"arm-{n}" in text and text.count(f"{4 + n / 100:.4f}") == len(RUNGS) for n in range(12))


def test_what_does_not_fit_is_counted():
    failures = [failure(number) for number in range(9)]
    text = screen([status_of(cell("tiny-25k", "none", failed=9), failed=failures)], 80, 24).plain
    assert "and 6 more" in text
    assert "seed 8" in screen([status_of(cell("tiny-25k", "none", failed=9), failed=failures)], 80).plain
    assert "more lines; all of them: scalevec status" in lines_of(status_of(*[]), 80, 2)[-1]


def test_the_sweep_that_somebody_runs_is_shown_whole_and_others_on_a_line():
    over = status_of(cell("tiny-25k", "none", completed=1), sweep="over", owned=False, stage=None)
    text = screen([over, status_of(cell("tiny-55k", "none", completed=1, pending=1))], 80, 24).plain
    assert text.startswith("small: ")
    assert "over: 1 of 1 trial done" in text
    assert "tiny-25k" not in text
