"""What a row says of the machine and the code that trained its trial."""

from scalevec.results.columns import ENVIRONMENT_COLUMNS, environment_columns

HERE = {
    "cpu_model": "A 7763",
    "cpu_capability": "AVX2",
    "threads": 1,
    "gpu": None,
    "cuda": None,
    "cudnn": None,
    "versions": {"torch": "2.13.0+cpu", "numpy": "2.4.0"},
    "commit": "ab12",
    "dirty": True,
    "local_changes": "0123456789ab",
}


def test_a_trial_of_one_attempt_says_its_machine_and_code():
    assert environment_columns([HERE]) == {
        "cpu_model": "A 7763",
        "cpu_capability": "AVX2",
        "threads": "1",
        "gpu": None,
        "cuda": None,
        "cudnn": None,
        "torch_version": "2.13.0+cpu",
        "commit": "ab12",
        "local_changes": "0123456789ab",
    }


def test_a_trial_that_went_on_elsewhere_names_both_machines_in_their_order():
    elsewhere = HERE | {"cpu_model": "B 8480", "threads": 4}
    columns = environment_columns([HERE, elsewhere, HERE])
    assert (columns["cpu_model"], columns["threads"]) == ("A 7763; B 8480", "1; 4")
    assert columns["commit"] == "ab12"


def test_no_record_says_nothing():
    assert environment_columns([]) == environment_columns([{}]) == dict.fromkeys(ENVIRONMENT_COLUMNS)
