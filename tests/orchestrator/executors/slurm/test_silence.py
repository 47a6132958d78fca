"""What is told of a SLURM that does not answer."""

from types import SimpleNamespace

import pytest

from scalevec.orchestrator.executors.slurm import slurm_executor as module
from scalevec.orchestrator.executors.slurm.slurm_executor import TOLD_AFTER_S, Silence


@pytest.fixture
def told_at(monkeypatch):
    """The news, with their times, of questions at these seconds; those at ``answered`` have an answer."""

    def ask(*seconds: float, answered: tuple[float, ...] = ()) -> list[tuple[float, str]]:
        silence, told = Silence(), []
        for now in seconds:
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda now=now: now))
            silence.heard(asked_at=now, answered=now in answered)
            told += [(now, words) for words in silence.news]
            silence.news = []
        return told

    return ask


def test_a_silence_is_told_once_however_long_it_lasts(told_at):
    ((when, words),) = told_at(100, 130, 100 + TOLD_AFTER_S, 300, 4000)
    assert when == 100 + TOLD_AFTER_S
    assert words.startswith("SLURM has not answered for 1 min")


def test_the_first_answer_after_it_is_told_with_its_length(told_at):
    _, (when, words) = told_at(100, 200, 280, 300, answered=(280, 300))
    assert (when, words) == (280, "SLURM answers again, after 3 min")


def test_a_short_silence_is_no_news(told_at):
    assert told_at(100, 130, 159, answered=(159,)) == []


def test_each_silence_is_told(told_at):
    assert len(told_at(0, 60, 70, 100, 160, 170, answered=(70, 170))) == 4
