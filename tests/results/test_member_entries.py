"""Entries of members.json: what is wrong with damaged ones, and what it costs to look at many."""

import random
from pathlib import Path

import pytest

from scalevec.results import member_entries
from scalevec.results.member_entries import problems_in

PATH = Path("members.json")
VALUES = [None, True, 1, 0, 1.0, -1, 2.5, float("nan"), 2**70, "", "text", "a\0b", [1], {"a": 1}, {"a": "\0"}]


def entry(number: int = 0, **changed):
    whole = {"trial_id": f"{number:064x}", "arm": "baseline", "stage": "comparison", "rung": "tiny"}
    return {**whole, "n_params": 25_088, "learning_rate": 0.01, "setting": {"beta2": 0.9}, **changed}


def without(name: str):
    return {key: value for key, value in entry().items() if key != name}


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        (7, "is 7, not an object"),
        (without("arm"), "has no text 'arm'"),
        (entry(trial_id="../x"), "has trial_id '../x'"),
        (entry(stage="later"), "has stage 'later'; allowed: tuning, comparison"),
        (entry(n_params=True), "has n_params = True, not a value of type int"),
        (entry(learning_rate="fast"), "has learning_rate = 'fast', not a value of type float"),
        (entry(setting=[1]), "has setting [1], not an object"),
        (entry(setting={"beta2": float("nan")}), "has a beta2 that is too large"),
    ],
)
def test_a_damaged_entry_is_found_among_whole_ones(damaged, problem):
    assert problems_in(PATH, [entry(1), damaged, entry(2)]) == {1: problem}


def test_the_look_at_columns_finds_what_the_look_at_entries_finds():
    draw = random.Random(0)
    names = [*entry(), "seed", "corpus", "unknown"]
    for _ in range(500):
        entries = [entry(number) for number in range(3)]
        draw.choice(entries)[draw.choice(names)] = draw.choice(VALUES)
        singly = all(not member_entries._problem(PATH, item) for item in entries)
        assert member_entries._are_whole(PATH, entries) == singly, entries


def test_each_different_value_of_whole_entries_is_checked_once(monkeypatch):
    checks = []
    kept = member_entries.checked_columns
    monkeypatch.setattr(
        member_entries, "checked_columns", lambda *given: (checks.append(given), kept(*given))
    )
    assert problems_in(PATH, [entry(number) for number in range(1000)]) == {}
    assert len(checks) < 10
