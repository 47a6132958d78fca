"""What an editor takes, refuses and shows in a sweep file."""

import json
from functools import cache

import pytest
from jsonschema import Draft202012Validator

from scalevec import sweeps
from scalevec.sweeps.yaml_source import read_file
from support import CHECKOUT

OURS = {"name": "x", "ladder": ["tiny-25k"], "arms": {"a": {}}}
THEIRS = {
    "name": "x",
    "trainer": {"command": ["python", "train.py", "{dropout}"], "result": "end.json"},
    "fields": {"dropout": "float"},
    "ladder": [{"name": "s", "n_params": 1000}],
    "arms": {"a": {}},
}
PLUGGED = OURS | {"plugins": ["mylab.arms"]}
OWN_FIELD = [
    {"trial": {"dropout": 0.1}},
    {"arms": {"a": {"dropout": 0.1}}},
    {"grid": {"dropout": [0.0, 0.1]}},
    {"zip": {"dropout": [0.0, 0.1]}},
    {"tune": {"dropout": [0.0, 0.1]}},
]


@cache
def validator() -> Draft202012Validator:
    schema = sweeps.json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("name", sweeps.shipped_names())
def test_every_shipped_sweep_is_valid(name):
    data = read_file(sweeps.shipped(name)).data
    assert [error.message for error in validator().iter_errors(data)] == []


@pytest.mark.parametrize("section", [*OWN_FIELD, {"ladder": [{"name": "s", "depth": 4}]}])
def test_fields_of_its_own_may_stand_in_the_sections_of_a_trainers_trials(section):
    assert validator().is_valid(THEIRS | section)


@pytest.mark.parametrize("section", [*OWN_FIELD, {"optimizers": [{"name": "mine", "sharpness": 2.0}]}])
def test_options_and_names_of_plugins_may_stand_where_ours_may(section):
    assert validator().is_valid(PLUGGED | section)


@pytest.mark.parametrize(
    "section", [*OWN_FIELD, {"ladder": [{"name": "s", "width": 16, "layers": 1, "depth": 4}]}]
)
def test_without_either_an_unknown_field_is_refused(section):
    assert validator().is_valid(OURS)
    assert not validator().is_valid(OURS | section)


@pytest.mark.parametrize(
    "section", [{"compare": {"refrence": "a"}}, {"tune": {"extend": -1}}, {"arms": {"a": {"layers": [1]}}}]
)
def test_what_nobody_can_declare_is_refused(section):
    assert not validator().is_valid(OURS | section)


@pytest.mark.parametrize("sweep", [OURS, THEIRS, PLUGGED])
def test_sections_that_nobody_can_add_to_are_checked_in_every_sweep(sweep):
    assert validator().is_valid(sweep)
    assert not validator().is_valid(sweep | {"lader": []})
    assert not validator().is_valid(sweep | {"seeds": ["a"]})


def test_the_kept_schema_is_that_of_the_code():
    kept = json.loads((CHECKOUT / "sweeps" / "schema.json").read_text(encoding="utf-8"))
    assert kept == json.loads(json.dumps(sweeps.json_schema())), "make readme writes it"
