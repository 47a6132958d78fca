"""The folder of a sweep: its names, and what it gives back."""

import pytest

from scalevec.results.files import CorruptRecordError
from scalevec.results.sweep_folder import SweepFolder, sweep_names

MEMBER = {"trial_id": "ab" * 32, "arm": "baseline", "stage": "comparison", "rung": "tiny"}
MEMBER |= {"setting": {"beta": 1}}


def test_what_is_written_is_read_back(tmp_path):
    folder = SweepFolder.of(tmp_path, "quick-start_1.0")
    folder.write_sweep(b"name: x # as given\r\n", tmp_path)
    assert folder.origin() == tmp_path
    folder.write_resolved({"name": "x"})
    folder.write_members([MEMBER])
    folder.write_tuning({"version": 1, "choices": []})
    assert folder.sweep() == b"name: x # as given\r\n"
    assert folder.resolved() == {"name": "x"}
    assert folder.members() == [MEMBER]
    assert folder.tuning() == {"version": 1, "choices": []}
    assert sweep_names(tmp_path) == ["quick-start_1.0"]


def test_what_trials_of_a_cell_share_is_written_once(tmp_path):
    folder, trials = SweepFolder.of(tmp_path, "s"), [MEMBER | {"seed": seed} for seed in range(5)]
    folder.write_members(trials)
    assert folder.members() == trials
    assert folder.members_path.read_text().count("baseline") == 1


def test_trials_that_have_no_names_yet_are_kept_until_they_have(tmp_path):
    folder = SweepFolder.of(tmp_path, "s")
    folder.write_to_come([])
    assert not folder.to_come_path.exists()
    folder.write_to_come([MEMBER])
    assert folder.to_come().entries() == [MEMBER]
    folder.write_to_come([])
    assert folder.to_come().entries() == []


def test_verdicts_are_added_to_those_that_were_given(tmp_path):
    folder = SweepFolder.of(tmp_path, "s")
    assert folder.verdicts() == folder.dropped() == []
    verdict = {"reference": "baseline", "verdict": "better", "pairs": [["ab" * 32, "cd" * 32]]}
    folder.add_verdicts([verdict | {"arm": "a"}])
    folder.add_verdicts([verdict | {"arm": "b"}])
    assert [verdict["arm"] for verdict in folder.verdicts()] == ["a", "b"]


@pytest.mark.parametrize("change", [{"arm": None}, {"pairs": 7}, {"pairs": [["a"]]}, {"trial_id": "../etc"}])
def test_a_damaged_verdict_is_refused_with_its_place_and_stays_in_its_file(tmp_path, change):
    folder = SweepFolder.of(tmp_path, "s")
    verdict = {"reference": "baseline", "arm": "a", "verdict": "better", "pairs": []}
    folder.add_verdicts([verdict, verdict | change])
    written = folder.verdicts_path.read_bytes()
    with pytest.raises(CorruptRecordError, match=r"verdicts\.json: entry 2 "):
        folder.add_verdicts([verdict])
    assert folder.verdicts_path.read_bytes() == written


def test_looking_creates_nothing(tmp_path):
    folder = SweepFolder.of(tmp_path, "new")
    assert folder.sweep() is folder.resolved() is folder.members() is folder.tuning() is None
    assert sweep_names(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "$(id)", "-x", "a\n", "a" * 101])
def test_a_name_that_could_leave_its_folder_or_reach_a_shell_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="sweep name"):
        SweepFolder.of(tmp_path, name)


def test_few_bytes_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("scalevec.results.sweep_folder.MOST_FIELDS", 9)
    folder = SweepFolder.of(tmp_path, "s")
    folder.write_members([MEMBER] * 3)
    with pytest.raises(CorruptRecordError, match="has more than 9 fields of trials"):
        folder.members()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"arm": 7}, "cell 2 has no 'arm'"),
        ({"trial_id": "../../../../etc"}, "trial 2 has no name"),
        ({"trial_id": 7}, "has trial_id = 7, not a value of type str"),
        ({"seed": 0.5}, "has seed = 0.5, not a value of type int"),
        ({"n_tokens": 0}, "has n_tokens = 0, not above zero"),
    ],
)
def test_a_damaged_entry_of_members_is_refused_and_named(tmp_path, change, problem):
    folder = SweepFolder.of(tmp_path, "s")
    folder.write_members([MEMBER, MEMBER | change])
    with pytest.raises(CorruptRecordError) as caught:
        folder.members()
    assert problem in str(caught.value)
