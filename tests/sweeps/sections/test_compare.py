"""The sections compare and measure: options of the analysis, what is measured along runs."""

import dataclasses

import pytest

from scalevec import sweeps
from scalevec.analysis.options import AnalysisOptions
from scalevec.sweeps.expansion.expand import expand

BEGINNING = "name: a\nladder: [tiny-25k]\narms: {b: {}}\ncompare: "


def section(text):
    return sweeps.loads(BEGINNING + text, "my.yaml").compare


def test_the_section_takes_every_option_of_a_comparison_the_reference_and_predictions():
    options = {option.name for option in dataclasses.fields(AnalysisOptions)} - {"interval", "weights"}
    beside = {"reference", "predict"}
    assert set(sweeps.json_schema()["$defs"]["Compare"]["properties"]) == {*beside, *options}


def test_a_law_takes_fixed_and_bounded_parameters():
    written = section("{law: 'chinchilla; fix E=1.6; bounds alpha=0.1:1'}").options().law
    assert written == "chinchilla; fix E=1.6; bounds alpha=0.1:1"


def test_the_options_of_the_file_are_those_of_the_object():
    text = "{law: chinchilla, hold_out: none, where: loss < 4, level: 0.8, bootstrap: 0, settings: beta2}"
    expected = AnalysisOptions(
        law="chinchilla", hold_out="none", where="loss < 4", level=0.8, bootstrap=0, settings=("beta2",)
    )
    assert section(text).options() == expected


def test_a_law_of_ones_own_is_a_formula_with_its_positive_parameters_and_starts():
    law = "E + A/N^alpha; positive E, A; start alpha = 0.3"
    assert section(f"{{law: '{law}'}}").options().law == law
    assert section("{law: E + A/N^alpha}").options().law == "E + A/N^alpha"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{law: chinchila}", "law: 'chinchila': unknown law; did you mean chinchilla? (allowed: auto, "),
        ("{law: E + A/ /N}", "law: formula 'E + A/ /N': expected a number"),
        (
            "{law: E*N; start E = x}",
            "law: formula 'E*N; start E = x': start 'E = x': expected a finite number",
        ),
        ("{x: flops}", "x: 'flops': unknown x (allowed: N, D, C"),
        ("{law: chinchilla, y: mmlu}", "y: 'mmlu'; law chinchilla describes the loss"),
    ],
)
def test_a_bad_option_is_refused_with_its_line_and_the_nearest_word(text, message, refusal):
    assert f"my.yaml:4: compare.{message}" in refusal(BEGINNING + text)


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
    texts = (quickstart, measuring("{what: [sharpness]}"))
    plain, measured = (sweeps.loads(text, "my.yaml") for text in texts)
    assert expand(plain, corpus) == expand(measured, corpus)
