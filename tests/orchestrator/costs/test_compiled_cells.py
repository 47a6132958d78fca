"""Which cells are compiled: by device or as asked, chosen once and kept with the sweep."""

import json
from typing import Any

import pytest
import yaml

from scalevec import sweeps
from scalevec.orchestrator.costs import compiled_cells
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.simulate.planted_law import nominal_corpus
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.sweep.plan_text import plan_text
from scalevec.orchestrator.sweep.planning import planned
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from scalevec.results.files import write_json
from scalevec.results.run_directory import RunDirectory

SWEEP: dict[str, Any] = {
    "name": "compiled",
    "corpus": {"tokenizer": "bytes", "sequence_length": 64},
    "ladder": ["tiny-25k", "tiny-55k"],
    "arms": {"baseline": {"scale_vectors": "baseline"}, "unified": {"scale_vectors": "unified"}},
    "tokens_per_parameter": [20, 40],
    "seeds": [0, 1],
}
GPU = {"default": {"gpus": 1}}


@pytest.fixture
def run_of(tmp_path, monkeypatch):
    """A sweep's run on one folder, on a machine with a compiler, with some sections changed."""
    monkeypatch.setattr(compiled_cells, "missing_compiler", lambda device: "")

    def run(**sections: Any) -> SweepRun:
        sweep = sweeps.loads(yaml.safe_dump(SWEEP | sections, sort_keys=False))
        return SweepRun(sweep, tmp_path / "runs", Progress(), nominal_corpus(sweep))

    return run


def compiled(run: SweepRun) -> dict[str, bool]:
    """By rung, of trials that all are trained alike."""
    by_rung: dict[str, set[bool]] = {}
    for member in run.members():
        by_rung.setdefault(member.cell.rung, set()).add(run.task(member).options.compiled)
    assert all(len(answers) == 1 for answers in by_rung.values())
    return {rung: answers.pop() for rung, answers in by_rung.items()}


def record(run: SweepRun, rung: str, **result: Any) -> None:
    """A trial of ``rung`` has begun, and has a result if one is given."""
    member = next(member for member in run.members() if member.cell.rung == rung)
    directory = run.directory(member.trial)
    directory.path.mkdir(parents=True)
    directory.append_event("running", attempt=1)
    if result:
        write_json(directory.result_path, {"status": "completed", "loss": 3.0, **result})


def test_small_trials_on_a_cpu_are_not_compiled_and_any_on_a_gpu_is(run_of):
    assert compiled(run_of()) == {"tiny-25k": False, "tiny-55k": False}
    assert compiled(run_of(resources=GPU)) == {"tiny-25k": True, "tiny-55k": True}


def test_a_person_can_say_so_for_each_rung(run_of):
    asked = {"default": {"compile": "always"}, "tiny-55k": {"compile": "never"}}
    assert compiled(run_of(resources=asked)) == {"tiny-25k": True, "tiny-55k": False}


def test_the_choice_is_kept_with_the_sweep(run_of):
    run_of(resources=GPU).arithmetic.keep()
    assert compiled(run_of()) == {"tiny-25k": True, "tiny-55k": True}


def test_what_was_kept_gives_way_to_a_person_only_before_the_first_trial(run_of, monkeypatch):
    run = run_of(resources=GPU)
    run.arithmetic.keep()
    record(run, "tiny-55k")
    later = run_of(resources={"default": {"compile": "never"}})
    assert compiled(later) == {"tiny-25k": False, "tiny-55k": True}
    messages: list[str] = []
    monkeypatch.setattr(later.progress, "message", messages.append)
    later.arithmetic.keep()
    assert messages == [
        "warning: rung tiny-55k stays compiled, as its trials began: compile: never comes too late"
    ]


def test_a_rung_with_results_from_before_there_was_a_choice_stays_as_it_was(run_of):
    run = run_of()
    record(run, "tiny-25k", device="cpu")
    record(run, "tiny-55k", arithmetic="compiled")
    always = {"default": {"compile": "always"}}
    assert compiled(run_of(resources=always)) == {"tiny-25k": False, "tiny-55k": True}
    assert compiled(run_of()) == {"tiny-25k": False, "tiny-55k": True}


def test_without_a_compiler_the_plan_says_so_and_nothing_is_compiled(run_of, monkeypatch):
    monkeypatch.setattr(compiled_cells, "missing_compiler", lambda device: f"a compiler for {device}")
    run = run_of(resources=GPU)
    assert compiled(run) == {"tiny-25k": False, "tiny-55k": False}
    text = plan_text(run, planned(run), 1)
    assert "blocks not compiled (this machine lacks a compiler for cuda): tiny-25k, tiny-55k" in text


def test_where_compiled_blocks_are_asked_for_or_kept_a_missing_compiler_ends_the_run(run_of, monkeypatch):
    run_of(resources=GPU).arithmetic.keep()
    monkeypatch.setattr(compiled_cells, "missing_compiler", lambda device: "g++")
    with pytest.raises(MissingRequirementError, match=r"rung tiny-25k .* lacks g\+\+"):
        run_of(resources=GPU).arithmetic.keep()


def test_other_machines_are_not_judged_by_what_this_one_lacks(run_of, monkeypatch):
    monkeypatch.setattr(compiled_cells, "missing_compiler", lambda device: "a compiler")
    run = run_of(resources={"default": {"gpus": 1}, "tiny-55k": {"compile": "never"}})
    run.arithmetic.sent_away = True
    assert compiled(run) == {"tiny-25k": True, "tiny-55k": False}
    run.arithmetic.keep()


def test_a_plan_names_what_is_compiled_and_each_trial_has_it(run_of):
    run = run_of(resources=GPU)
    rows = json.loads(json.dumps(planned(run)))
    assert {row["arithmetic"] for row in rows} == {"compiled"}
    assert "blocks compiled (on a GPU): tiny-25k, tiny-55k" in plan_text(run, planned(run), 1)


def test_a_trial_id_does_not_depend_on_it(run_of):
    ids = [{run.id_of(member.trial) for member in run.members()} for run in (run_of(), run_of(resources=GPU))]
    assert ids[0] == ids[1]
    assert not any(RunDirectory.of(run_of().runs_dir, name).path.exists() for name in ids[0])
