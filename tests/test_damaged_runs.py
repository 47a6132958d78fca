"""Runs folders with anything in them: every reading command says what it leaves out, and executes nothing."""

import pytest

from damaged_runs import Damaged, several_sweeps
from support import filled_once

NIGHTLY = 5000
SAMPLE = 60
PART = 20
"""Folders of one test."""
FIRST = [
    pytest.param(seed, marks=pytest.mark.slow if seed < SAMPLE else pytest.mark.nightly)
    for seed in range(0, NIGHTLY, PART)
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return filled_once(tmp_path_factory, "several sweeps", several_sweeps) / "runs"


@pytest.mark.parametrize("first", FIRST)
def test_no_reading_command_fails_on_damage_or_executes_what_it_reads(whole, tmp_path, first):
    seeds = range(first, first + PART)
    failures = {seed: Damaged(whole, tmp_path / str(seed), seed).failures() for seed in seeds}
    assert {seed: each for seed, each in failures.items() if each} == {}
