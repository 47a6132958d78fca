"""A comparison that goes on until it is decided: looks planned before the first result, one stage each."""

import json

import pytest
from tests.simulations import Simulated, simulated

from scalevec.orchestrator.commands.analyse.compare import compare
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.sweep.trial_costs import gpu_hours
from scalevec.results.files import CorruptRecordError
from scalevec.results.sweep_folder import SweepFolder

NAME = "simulated"
DECIDED = {"until": "decided", "looks": 4}
ARMS = {name: {"scale_vectors": name} for name in ("baseline", "none", "unified")}
SEEDS = list(range(10, 20))


def decided(runs_dir, gains, seeds=SEEDS, **sections) -> Simulated:
    """The sweep with planted multipliers: at looks of 4, 6, 8 and 10 seeds."""
    planted = {name: {"gain": gain} for name, gain in gains.items()}
    arms = {name: ARMS[name] for name in ("baseline", *gains)}
    sections = {"compare": DECIDED, **sections}
    return simulated(runs_dir, arms=arms, simulate={"arms": planted}, seeds=seeds, **sections)


def seeds_run(sweep: Simulated, arm: str) -> int:
    return len({seed for of_arm, _, _, seed in sweep.losses() if of_arm == arm})


def verdicts(runs_dir):
    return {record["arm"]: record for record in compare(NAME, runs_dir, given={"bootstrap": 0}).record}


def test_a_clear_difference_ends_the_sweep_at_the_first_look(tmp_path):
    sweep = decided(tmp_path, {"unified": 1.3})
    assert seeds_run(sweep, "unified") == seeds_run(sweep, "baseline") == 4
    record = verdicts(tmp_path)["unified"]
    assert record["verdict"] == "better"
    assert record["claim_status"]["text"] == "decided at look 1 of 4 (4 seeds)"


def test_an_arm_without_a_difference_ends_for_futility_and_says_so(tmp_path):
    sweep = decided(tmp_path, {"unified": 1.0})
    record = verdicts(tmp_path)["unified"]
    assert (record["verdict"], record["plan"]["ends"]) == ("undecided", "futility")
    assert record["claim_status"]["text"].startswith("ended for futility at look ")
    assert seeds_run(sweep, "unified") == record["plan"]["look"] < 10


def test_an_arm_within_the_margin_is_equivalent_before_the_last_look(tmp_path):
    decided(tmp_path, {"unified": 1.0}, compare=DECIDED | {"margin": 0.05})
    record = verdicts(tmp_path)["unified"]
    assert (record["verdict"], record["plan"]["look"]) == ("equivalent", 4)


def test_arms_that_are_decided_are_not_trained_further(tmp_path):
    sweep = decided(tmp_path, {"none": 1.001, "unified": 1.3}, seeds=list(range(20, 30)))
    assert seeds_run(sweep, "unified") == 4 < seeds_run(sweep, "none") == seeds_run(sweep, "baseline")
    assert {record["verdict"] for record in verdicts(tmp_path).values()} == {"better", "undecided"}


def test_a_sweep_that_is_run_again_trains_nothing_more(tmp_path):
    before = decided(tmp_path, {"none": 1.0, "unified": 1.3}).losses()
    assert decided(tmp_path, {"none": 1.0, "unified": 1.3}).losses() == before


def test_the_plan_is_kept_before_the_first_result_and_stays(tmp_path):
    gains = {"unified": 1.3}
    decided(tmp_path, gains)
    path = SweepFolder.of(tmp_path, NAME).looks_path
    kept = json.loads(path.read_text())
    assert kept["looks"] == [4, 6, 8, 10]
    decided(tmp_path, gains)
    assert json.loads(path.read_text()) == kept


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        ({"compare": {"until": "decided", "looks": 3}}, "compare.looks"),
        ({"compare": DECIDED | {"margin": 0.01}}, "compare.margin"),
        ({"compare": {"looks": [4, 6, 8, 10]}}, "compare.until"),
        ({"compare": DECIDED | {"at_most": {"gpu_hours": 2}}}, "compare.at_most.gpu_hours"),
        ({"seeds": list(range(1, 11))}, "seeds"),
    ],
)
def test_a_plan_that_is_edited_after_the_first_result_is_refused(tmp_path, edit, field):
    decided(tmp_path, {"unified": 1.3})
    with pytest.raises(InvalidInputError, match=rf"^{field} is .*declared before the first result"):
        decided(tmp_path, {"unified": 1.3}, **edit)


def test_looks_until_decided_cannot_be_declared_once_there_is_a_result(tmp_path):
    decided(tmp_path, {"unified": 1.3}, compare={"looks": [4, 6, 8, 10]})
    with pytest.raises(InvalidInputError, match=r"compare\.until is decided"):
        decided(tmp_path, {"unified": 1.3})


def test_a_kept_plan_whose_content_was_edited_is_refused(tmp_path):
    decided(tmp_path, {"unified": 1.3})
    path = SweepFolder.of(tmp_path, NAME).looks_path
    path.write_text(path.read_text().replace('"decided"', '"last"'))
    with pytest.raises(CorruptRecordError, match="edited"):
        SweepFolder.of(tmp_path, NAME).looks()


def test_looks_beyond_the_limit_are_left_out_of_the_plan(tmp_path):
    resources = {"default": {"checkpoint_s": 5, "gpus": 1}}
    roomy = decided(tmp_path / "roomy", {"unified": 1.3}, resources=resources)
    of_seven = gpu_hours(roomy.run, 7)
    limited = DECIDED | {"at_most": {"gpu_hours": of_seven}}
    decided(tmp_path / "limited", {"unified": 1.3}, resources=resources, compare=limited)
    assert verdicts(tmp_path / "limited")["unified"]["plan"]["looks"] == [4, 6]


def test_a_limit_that_leaves_no_look_is_refused_before_anything_is_kept(tmp_path):
    limited = DECIDED | {"at_most": {"gpu_hours": 1e-9}}
    with pytest.raises(InvalidInputError, match="the first look, at 4 seeds, takes about"):
        decided(tmp_path, {"unified": 1.3}, resources={"default": {"gpus": 1}}, compare=limited)
    assert not SweepFolder.of(tmp_path, NAME).sweep_path.exists()
