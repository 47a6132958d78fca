"""Runs folders with anything in them: every reading command says what it leaves out, and executes nothing."""

import pytest

from damaged_runs import Damaged, several_sweeps
from support import filled_once

NIGHTLY = 5000
SAMPLE = 60
PART = 20
"""Folders of one test."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return filled_once(tmp_path_factory, "several sweeps", several_sweeps) / "runs"


def failures(whole, folder, first):
    return [
        f"{seed}: {failure}"
        for seed in range(first, first + PART)
        for failure in Damaged(whole, folder / str(seed), seed).failures()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SAMPLE, PART))
def test_no_reading_command_fails_on_damage_or_executes_what_it_reads(whole, tmp_path, first):
    assert failures(whole, tmp_path, first) == []


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(SAMPLE, NIGHTLY, PART))
def test_no_reading_command_fails_on_much_damage(whole, tmp_path, first):
    assert failures(whole, tmp_path, first) == []
