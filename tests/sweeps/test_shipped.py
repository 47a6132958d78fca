"""The sweeps that we ship, large and small; what a loaded sweep answers; the schema of the file."""

from collections.abc import Callable
from typing import Any

import paper
import pytest
import yaml

from scalevec import sweeps
from scalevec.model.optimization import OPTIMIZERS
from scalevec.sweeps.expansion.expand import CorpusFacts, expand
from support import CHECKOUT

PAPER = sorted((CHECKOUT / "sweeps" / "paper").glob("*.yaml"))
SMALL = sorted((CHECKOUT / "sweeps" / "small").glob("*.yaml"))


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_sweep_of_the_papers_size_can_be_planned_before_its_text_is_there(path):
    sweep = sweeps.load(path, look_for_files=False)
    assert expand(sweep, CorpusFacts("", sweep.corpus.vocabulary, 10**15))


def test_without_its_text_it_is_not_run():
    with pytest.raises(sweeps.SweepError, match="no such file"):
        sweeps.load(PAPER[0])


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_a_small_sweep_names_its_tables_and_has_a_cut_that_loads(path):
    assert path.stem in paper.TABLES
    whole = sweeps.load(path)
    cut = sweeps.loads(yaml.safe_dump(paper.cut(yaml.safe_load(path.read_text()))))
    assert cut.name == whole.name.replace("small", "smoke")
    assert cut.reference == whole.reference
    assert len(cut.arms) == 2


def test_every_small_sweep_that_is_run_exists():
    assert {path.stem for path in SMALL} == set(paper.TABLES)


def test_the_packages_of_a_corpus_are_those_that_the_project_pins():
    packages = sweeps.load(CHECKOUT / "sweeps" / "small" / "trend.yaml").corpus.packages
    pins = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").lower().splitlines()
    assert packages
    assert [name for name in packages if name.lower() not in pins] == []


def test_every_sweep_file_of_the_project_is_shipped_under_its_name():
    names = sweeps.shipped_names()
    assert {"quickstart", "simulate", "paper/main", "small/main"} <= set(names)
    assert {sweeps.shipped(name).resolve() for name in names} == set((CHECKOUT / "sweeps").rglob("*.yaml"))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("quickstrat", "quickstart"), ("main", "paper/main, small/main"), ("large/decay", "paper/decay")],
)
def test_a_name_that_is_not_shipped_is_refused_with_the_nearest(name, nearest):
    with pytest.raises(FileNotFoundError, match=f"no sweep called '{name}' is shipped; nearest: {nearest}"):
        sweeps.shipped(name)


@pytest.fixture
def sweep(quickstart: str) -> Any:
    return sweeps.loads(quickstart, "quickstart.yaml")


def test_the_demo_is_the_one_that_was_measured(sweep: Any, corpus: CorpusFacts) -> None:
    cells = expand(sweep, corpus)
    trials = {(cell.arm, cell.rung): (cell.template.tokens, cell.seeds, cell.tune_seeds) for cell in cells}
    for arm in ("none", "baseline", "unified"):
        assert trials[arm, "tiny-25k"] == (401_408, (3, 4, 5), (100,))
        assert trials[arm, "tiny-55k"] == (884_736, (3, 4, 5), (100,))
        assert trials[arm, "tiny-83k"] == (1_327_104, (3, 4, 5), ())
        assert trials[arm, "tiny-150k"] == (2_408_448, (3, 4), ())
    assert {tuple(cell.tune_grid["learning_rate"]) for cell in cells} == {(0.008, 0.02, 0.05)}


def test_the_demo_keeps_the_models_of_its_largest_size_and_trains_the_same_trials(sweep, corpus, changed):
    assert [sweep.keep_for(rung.name) for rung in sweep.ladder] == ["none", "none", "none", "weights"]
    without = sweeps.loads(changed("tiny-150k: {keep: weights}", "tiny-150k: {cpus: 1}"))
    assert without.keep_for("tiny-150k") == "none"
    assert expand(without, corpus) == expand(sweep, corpus)


def test_the_reference_is_the_baseline_or_else_the_first_arm(changed: Callable[[str, str], str]) -> None:
    line = "compare: {reference: baseline, law: power, margin: 0.005}"
    assert sweeps.loads(changed(line, "")).reference == "baseline"
    assert sweeps.loads("name: x\nladder: [tiny-25k]\narms: {b: {}, a: {}}").reference == "b"


def test_resources_of_a_rung_stand_over_the_default(changed: Callable[[str, str], str]) -> None:
    text = changed("default: {time: auto}", "default: {time: 30, gpus: 1}\n  tiny-55k: {gpus: 0.5}")
    sweep = sweeps.loads(text)
    actual = [sweep.resources_for(rung) for rung in ("tiny-25k", "tiny-55k")]
    assert [(resources.time, resources.gpus) for resources in actual] == [(30.0, 1), (30.0, 0.5)]


def test_every_field_of_simulate_has_a_default(sweep: Any) -> None:
    planted = sweep.simulation()
    assert planted["law"] == {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
    assert set(planted["faults"].values()) == {0.0}


def test_the_planted_best_rate_is_the_middle_of_the_tuned_grid_unless_it_is_given(sweep, changed):
    given = "name: quickstart\nsimulate: {learning_rate: {optimum: 0.01}}"
    assert sweep.simulation()["learning_rate"]["optimum"] == 0.02
    assert sweeps.loads(changed("name: quickstart", given)).simulation()["learning_rate"]["optimum"] == 0.01
    untuned = sweeps.loads("name: x\nladder: [tiny-25k]\narms: {a: {}}")
    assert "optimum" not in untuned.simulation()["learning_rate"]


def test_every_field_of_every_section_is_described_in_the_schema() -> None:
    schema = sweeps.json_schema()
    sections = {"": schema, **schema["$defs"]}
    assert len(schema["properties"]) == 25
    undescribed = [
        f"{section}.{name}"
        for section, definition in sections.items()
        for name, field in definition["properties"].items()
        if not field.get("description")
    ]
    assert undescribed == []


def test_the_schema_knows_the_optimizers_and_the_options_of_each() -> None:
    fields = sweeps.json_schema()["$defs"]["OptimizerFields"]["properties"]
    assert fields["name"]["enum"] == list(OPTIMIZERS)
    for optimizer in OPTIMIZERS.values():
        for name, option in optimizer.options.items():
            assert fields[name]["description"] == option.help
            assert fields[name].get("enum", []) == list(option.choices)


def test_the_resolved_sweep_loads_as_the_same_sweep(changed, corpus):
    text = changed("default: {time: auto}", "default: {time: 30, gpus: 1}\n  tiny-55k: {gpus: 0.5}")
    text = text.replace("seeds: [3, 4, 5]", "seeds: [3, 4, 5]\nsimulate: {arms: {unified: {gain: 1.05}}}")
    text = text.replace("{bpe: 1024}", "bytes").replace("scale_vectors: none", "scale_vectors: {preset: or}")
    first = sweeps.loads(text)
    second = sweeps.loads(yaml.safe_dump(first.resolved()))
    by_arm = [
        sorted(expand(sweep, corpus), key=lambda cell: (cell.n_params, cell.arm)) for sweep in (first, second)
    ]
    assert by_arm[0] == by_arm[1]
    assert first.resources_for("tiny-55k") == second.resources_for("tiny-55k")
    assert second.resolved() == first.resolved()
