"""The state of sweeps in any number of columns and lines."""

import pytest
from rich.cells import cell_len

from scalevec.orchestrator.commands.look.screen import screen

RUNGS = ("tiny-25k", "tiny-55k", "tiny-83k", "tiny-150k")


def cell(rung, arm, *, loss=None, stage="comparison", setting=None, **states) -> dict:
    return {
        "stage": stage,
        "rung": rung,
        "n_params": None,
        "setting": setting or {},
        "arm": arm,
        "trials": sum(states.values()),
        "states": states,
        "loss": loss,
    }


def status_of(*cells, **changes) -> dict:
    states = {}
    for each in cells:
        for state, count in each["states"].items():
            states[state] = states.get(state, 0) + count
    return {
        "sweep": "small",
        "trials": sum(states.values()),
        "states": states,
        "to_come": 0,
        "stage": "comparison",
        "running": [],
        "seconds_left": 600.0,
        "sweep_seconds_left": 600.0,
        "plan": None,
        "cost": None,
        "cells": list(cells),
        "waiting": [],
        "failed": [],
        "chosen": [],
        "queue": {"jobs": {}, "controller": None, "unknown": None},
        "seeds_without_effect": None,
        "problems": {},
        "owned": True,
        "seconds_since_sign_of_life": 4.2,
        **changes,
    }


def lines_of(status, width=80, height=None) -> list[str]:
    return screen([status], width, height).plain.split("\n")


def failure(number, error="RuntimeError: boom") -> dict:
    label = f"none tiny-25k seed {number}"
    return {"label": label, "error": error, "reason": "the same error twice", "cause": "error"}


def test_settings_that_would_be_cut_stand_as_values_and_the_legend_names_them():
    settings = [
        {"weight_decay": decay, "embedding_scale": scale, "norm_gain": gain}
        for decay in ("0.1", "0.3")
        for scale, gain in (("none", "g"), ("sqrt-width", "1+w"))
    ]
    lines = lines_of(status_of(*(cell("tiny-25k", "iwd", setting=each, completed=2) for each in settings)))
    assert [line.split("  ")[0] for line in lines[5:9]] == [
        "tiny-25k 0.1 none g",
        "tiny-25k 0.1 sqrt-width 1+w",
        "tiny-25k 0.3 none g",
        "tiny-25k 0.3 sqrt-width 1+w",
    ]
    assert lines[9].startswith("named by rung, weight_decay, embedding_scale, norm_gain; done/all")


def test_rungs_stand_by_arms_with_counts_and_mean_losses():
    lines = lines_of(
        status_of(
            cell("tiny-25k", "baseline", completed=2, loss=4.44692),
            cell("tiny-25k", "none", completed=1, running=1, loss=4.4826),
            cell("tiny-55k", "baseline", pending=2),
            cell("tiny-55k", "none", diverged=1, failed=1),
        )
    )
    assert lines[:2] == [
        "small: comparison, 4 of 8 trials done (1 diverged), 1 running, 2 waiting, 1",
        "failed",
    ]
    assert lines[5:] == [
        "          baseline            none",
        "tiny-25k  2/2         4.4469  1/2  r1     4.4826",
        "tiny-55k  0/2                 1/2  f1 d1",
        "done/all, r running, f failed, d diverged, mean test loss",
    ]


def test_the_head_says_what_is_done_what_is_left_and_who_runs_it():
    plan = {"planned_s": 3600, "share_done": 0.25, "compared": 3} | {
        "compared_measured_s": 30.0,
        "compared_planned_s": 20.0,
    }
    cost = {"unit": "GPU hours", "spent": 1.234, "left": 3.7}
    status = status_of(
        cell("tiny-25k", "none", completed=1, pending=3), plan=plan, cost=cost, sweep_seconds_left=4000.0
    )
    assert lines_of(status)[:5] == [
        "small: comparison, 1 of 4 trials done, 3 waiting",
        "work     [#####---------------] 25% of 1 h 0 min planned; so far 1.5 x that",
        "left     comparison about 10 min 0 s, sweep about 1 h 6 min",
        "cost     1.23 GPU hours spent, about 3.7 left",
        "run by   a scheduler, last sign of life 4 s ago",
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
        waiting=[{"reason": f"for reason {number}", "trials": 3} for number in range(9)],
    )
    lines = lines_of(status, width, height)
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width


def test_where_lines_are_short_rows_in_which_something_happens_stay():
    cells = [cell(f"rung-{number}", "none", completed=2, loss=4.0) for number in range(30)]
    cells[20] = cell("rung-20", "none", running=1, completed=1, loss=3.9)
    shown = lines_of(status_of(*cells, failed=[failure(0)]), 80, 20)
    assert any(line.startswith("rung-20 ") for line in shown)
    assert any("more lines" in line for line in shown)
    assert any("RuntimeError: boom (the same error twice)" in line for line in shown)


def test_many_arms_become_rows():
    cells = [cell(rung, f"arm-{n}", completed=1, loss=4.0) for rung in RUNGS for n in range(12)]
    lines = lines_of(status_of(*cells), 80, 24)
    assert sum(line.startswith("arm-") for line in lines) == 12


def test_names_cannot_command_the_terminal():
    assert "\x1b" not in screen([status_of(cell("tiny-25k", "\x1b[2Jnone", completed=1))], 80).plain


def test_the_sweep_that_somebody_runs_is_shown_whole_and_others_on_a_line():
    over = status_of(cell("tiny-25k", "none", completed=1), sweep="over", owned=False, stage=None)
    text = screen([over, status_of(cell("tiny-55k", "none", completed=1, pending=1))], 80, 24).plain
    assert text.startswith("small: ")
    assert "over: 1 of 1 trial done" in text
    assert "tiny-25k" not in text
