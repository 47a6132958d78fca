"""What a sweep file says is to be measured along its runs."""

import pytest

from scalevec import sweeps
from scalevec.sweeps.expansion.expand import expand

LAST = "resources:\n"


@pytest.fixture
def measuring(changed):
    return lambda text: changed(LAST, f"measure: {text}\n{LAST}")


def test_the_resolved_file_measures_the_same(measuring):
    sweep = sweeps.loads(measuring("{what: [preconditioner, sharpness]}"), "my.yaml")
    assert sweep.resolved()["measure"] == {"what": ["preconditioner", "sharpness"], "every": 100}


def test_an_unknown_measure_names_the_nearest(measuring, refusal):
    message = refusal(measuring("{what: [sharpnes]}"))
    assert "measure.what[0]: 'sharpnes': no such measure; did you mean sharpness?" in message
    assert "(allowed: preconditioner, sharpness)" in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{what: [sharpness], every: 0}", "measure.every: 0; allowed: 1 or more"),
        ("{every: 50}", "measure.what"),
    ],
)
def test_a_wrong_section_is_refused(measuring, refusal, text, part):
    assert part in refusal(measuring(text))


def test_measuring_changes_no_trial(measuring, quickstart, corpus):
    plain, measured = (
        sweeps.loads(text, "my.yaml") for text in (quickstart, measuring("{what: [sharpness]}"))
    )
    assert expand(plain, corpus) == expand(measured, corpus)
