"""The words of the project: what the word list finds, and that no file has more of it than it is allowed."""

import pytest
import voice

from support import CHECKOUT


def test_no_file_has_more_to_rewrite_than_it_is_allowed():
    allowed = voice.allowance(voice.ALLOWED.read_text("utf-8"))
    assert voice.beyond(voice.findings_by_file(CHECKOUT), allowed) == []


@pytest.mark.parametrize(
    "text",
    [
        "0.05 nats a token",
        "one row\na trial",
        "200 redraws",
        "n_resamples = 3",
        "this is a fault in it",
        "made anew",
    ],
)
def test_a_phrase_of_the_list_is_found(text):
    assert [finding.line for finding in voice.check("a.md", f"First.\n{text}")] == [2]


@pytest.mark.parametrize("text", ["0.05 nats/token", "each run a trial of its own", "a new fit", "recommend"])
def test_field_english_passes(text):
    assert voice.check("a.md", text) == []


@pytest.mark.parametrize(
    "code",
    ["found = 1", "for one in []: pass", "def f(own): pass", "def _said(): pass", "[0 for place in []]"],
)
def test_a_name_that_does_not_say_what_it_holds_is_found(code):
    assert [finding.line for finding in voice.check("a.py", code)] == [1]


def test_names_count_where_they_are_assigned_and_not_where_they_are_read():
    assert voice.check("a.py", "trial.place = record['found'](one=made)") == []


def test_more_findings_than_allowed_are_reported_and_fewer_are_not():
    findings = {"a.md": voice.check("a.md", "drawn anew, fitted anew")}
    assert voice.beyond(findings, {"a.md": 2}) == []
    assert len(voice.beyond(findings, {"a.md": 1})) == 2
