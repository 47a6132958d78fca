"""Runs folders with anything broken in them: every reading command says what it leaves out, and works."""

import pytest

from damaged_runs import Damaged, whole_runs
from support import filled_once

NIGHTLY = 2000


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return filled_once(tmp_path_factory, "whole runs", lambda folder: whole_runs(folder / "runs")) / "runs"


@pytest.mark.parametrize("seed", range(12))
def test_no_reading_command_fails_on_damage(whole, tmp_path, seed):
    assert Damaged(whole, tmp_path, seed).failures(1) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 1000 + NIGHTLY))
def test_no_reading_command_fails_on_much_damage(whole, tmp_path, seed):
    assert Damaged(whole, tmp_path, seed).failures(2) == []
