"""A sweep whose trials another's code trains: what is refused, and what a trial is."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scalevec import sweeps
from scalevec.sweeps.expansion.expand import Cell, CorpusFacts, code_files, expand
from scalevec.sweeps.sections.trainer import RESERVED
from scalevec.sweeps.trainer_checks import TYPES_OF_COLUMNS
from scalevec.sweeps.trainers.any_trial import ForeignTrial, trial_from_fields

COMMAND = ["python", "train.py", "--width={width}", "--lr={learning_rate:.6g}", "--dropout={dropout}"]
COMMAND += ["--tokens={tokens}", "--seed={seed}", "--out={out}"]


TWINS = [{"name": "s", "n_params": 1000, "width": 8}, {"name": "m", "n_params": 4000, "width": 8, "heads": 2}]
GOLDEN = "fac1cff8a4af0a9aca5e8c36e3b42b9067cdb0bbe49410fddb401646553ab29b"


def sweep_text(**changes: Any) -> str:
    trainer = {"command": COMMAND, "metrics": "log.jsonl"} | changes.pop("trainer", {})
    data: dict[str, Any] = {
        "name": "mine",
        "trainer": {name: value for name, value in trainer.items() if value is not None},
        "fields": {"dropout": "float"},
        "ladder": [{"name": "s", "n_params": 1000, "width": 8}, {"name": "m", "n_params": 4000, "width": 16}],
        "trial": {"learning_rate": 0.01},
        "arms": {"plain": {"dropout": 0.0}, "dropped": {"dropout": 0.1}},
        "tokens_per_parameter": [20],
    }
    data |= changes
    return yaml.safe_dump({name: value for name, value in data.items() if value is not None}, sort_keys=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print('trained')\n")
    return tmp_path


def cells_in(folder: Path, **changes: Any) -> list[Cell]:
    sweep = sweeps.loads(sweep_text(**changes), "mine.yaml", folder)
    return expand(sweep, CorpusFacts("", 2, 2**60))


def refusal(folder: Path, **changes: Any) -> str:
    with pytest.raises(sweeps.SweepError) as refused:
        sweeps.loads(sweep_text(**changes), "mine.yaml", folder)
    return str(refused.value)


def template(cell: Cell) -> ForeignTrial:
    assert isinstance(cell.template, ForeignTrial)
    return cell.template


def test_a_trial_has_its_fields_its_budget_and_the_content_of_the_script(folder: Path) -> None:
    trial = template(cells_in(folder)[1])
    assert trial.values == {"width": 8, "learning_rate": 0.01, "dropout": 0.1}
    assert (trial.n_params, trial.tokens) == (1000, 20_000)
    assert [file.path for file in trial.trainer.files] == ["train.py"]
    assert trial_from_fields(trial.semantic_fields()) == trial


def test_the_golden_id_of_a_foreign_trial(folder: Path) -> None:
    assert cells_in(folder)[0].trial(0).trial_id() == GOLDEN


def test_another_content_of_the_script_is_another_trial_unless_a_version_stands_for_it(folder: Path) -> None:
    before = [cells_in(folder, trainer=given)[0].template.trial_id() for given in ({}, {"code_version": 3})]
    (folder / "train.py").write_text("print('trained otherwise')\n")
    after = [cells_in(folder, trainer=given)[0].template.trial_id() for given in ({}, {"code_version": 3})]
    assert [first == second for first, second in zip(before, after, strict=True)] == [False, True]


def test_another_content_of_what_a_script_imports_is_another_trial(folder: Path) -> None:
    (folder / "train.py").write_text("import model\n")
    ids = []
    for content in ("GAIN = 1", "GAIN = 2"):
        (folder / "model.py").write_text(content)
        trial = template(cells_in(folder)[0])
        assert [file.path for file in trial.trainer.files] == ["model.py", "train.py"]
        ids.append(trial.trial_id())
    assert ids[0] != ids[1]


def test_a_script_that_only_an_attempt_or_tuning_chooses_is_among_the_files(folder: Path) -> None:
    for name in ("seed_0.py", "seed_1.py", "warm_1.py", "warm_2.py", "again.py", "other.py"):
        (folder / name).touch()
    command = [*COMMAND, "seed_{seed_index}.py", "--warm=warm_{warm}.py"]
    cells = cells_in(
        folder,
        trainer={"command": command, "checkpoint": "ckpt", "resume": ["again.py"]},
        fields={"dropout": "float", "warm": "int"},
        tune={"warm": [1, 2]},
    )
    named = ["again.py", "seed_0.py", "seed_1.py", "train.py", "warm_1.py", "warm_2.py"]
    assert code_files(cells) == named


def test_files_that_a_field_chooses_belong_to_the_trials_that_name_them(folder: Path) -> None:
    (folder / "small.json").write_text("{}")
    command = [*COMMAND, "--config={config}.json"]
    cells = cells_in(
        folder,
        trainer={"command": command},
        fields={"dropout": "float", "config": "str"},
        arms={"plain": {"dropout": 0.0, "config": "small"}, "none": {"dropout": 0.0, "config": "none"}},
    )
    named = [[file.path for file in template(cell).trainer.files] for cell in cells[:2]]
    assert named == [["small.json", "train.py"], ["train.py"]]
    assert code_files(cells) == ["small.json", "train.py"]


def test_a_formula_counts_parameters(folder: Path) -> None:
    ladder = [{"name": "s", "width": 8, "layers": 2}, {"name": "m", "width": 16, "layers": 3}]
    cells = cells_in(folder, ladder=ladder, n_params="12 * layers * width ** 2")
    assert [cell.n_params for cell in cells[::2]] == [12 * 2 * 64, 12 * 3 * 256]


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("__import__('os').getcwd()", "numbers, fields and"),
        ("width ** width ** width ** 99", "exponents up to 16"),
        ("depth * 2", "depth: no such field"),
        ("width - 8", "a formula that gives 1 to 1e+18"),
        ("+".join(["width"] * 2000), "formula"),
    ],
)
def test_what_is_no_formula_is_refused(folder: Path, formula: str, words: str) -> None:
    assert words in refusal(folder, n_params=formula, ladder=[{"name": "s", "width": 8}])


def test_budgets_come_in_whole_batches_where_a_batch_is_given(folder: Path) -> None:
    command = [*COMMAND, "--steps={steps}"]
    cells = cells_in(folder, trainer={"command": command}, trial={"learning_rate": 0.1, "batch_tokens": 3000})
    assert (template(cells[0]).tokens, template(cells[0]).steps) == (21_000, 7)


def test_batches_of_a_trainer_are_tuned(folder: Path) -> None:
    trainer = {"command": [*COMMAND, "--batch={batch_tokens}"]}
    cells = cells_in(
        folder, trainer=trainer, tune={"batch_tokens": [50, 100], "rungs": ["s"], "seeds": [100]}
    )
    assert {cell.template.tokens % 100 for cell in cells} == {0}


def test_a_tuned_field_of_its_own_is_of_its_own_kind(folder: Path) -> None:
    command = [*COMMAND, "--warm={warm}"]
    fields = {"dropout": "float", "warm": "int"}
    cells = cells_in(folder, trainer={"command": command}, fields=fields, tune={"warm": [10, 20, 40]})
    assert cells[0].tune_grid == {"warm": (10, 20, 40)}
    assert cells[0].trial(100, warm=20.0).values["warm"] == 20  # type: ignore[union-attr]


def test_a_resolved_sweep_loads_as_the_same_trials(folder: Path) -> None:
    sweep = sweeps.loads(sweep_text(), "mine.yaml", folder)
    again = sweeps.loads(yaml.safe_dump(sweep.resolved(), sort_keys=False), "resolved.yaml", folder)
    facts = CorpusFacts("", 2, 2**60)
    expected = [cell.template for cell in expand(sweep, facts)]
    assert [cell.template for cell in expand(again, facts)] == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trainer": {"command": [*COMMAND, "--x={widht}"]}}, "{widht}: no such field; did you mean width?"),
        ({"trainer": {"command": [*COMMAND, "--x={out.__class__}"]}}, "placeholders such as {seed}"),
        ({"trainer": {"command": [*COMMAND, "--x={dropout:d}"]}}, "formats that fit their values"),
        ({"trainer": {"resume": ["{layers}"], "checkpoint": "c"}}, "layers has no value here"),
        ({"trainer": {"resume": ["--resume"]}}, "name its files under checkpoint"),
        ({"trainer": {"metrics": None, "pattern": r"(?P<step>\d+)"}}, "a group (?P<loss>...)"),
        ({"trainer": {"command": COMMAND[:-2]}}, "has no {seed}"),
        ({"trainer": {"command": COMMAND[:-1]}}, "has no {out}, below which log.jsonl is looked for"),
        (
            {"trainer": {"command": ["python", "train.py", "--seed={seed}", "--drop={dropout}"]}},
            "ladder: the command gets no field of the rungs",
        ),
        (
            {"arms": {"a": {"dropout": 0.101}, "b": {"dropout": 0.104}}}
            | {"trainer": {"command": [w.replace("{dropout}", "{dropout:.2f}") for w in COMMAND]}},
            "writes several values alike",
        ),
        ({"trainer": {"metrics": "{seed}.jsonl"}}, "a path inside {out}, as seen from there"),
        ({"trainer": {"step": ""}}, "text that is not empty"),
        ({"trainer": {"command": ["python", "trian.py", *COMMAND[2:]]}}, "'trian.py': no such file"),
        ({"trainer": {"command": ["torchrun", "-m", "mine", *COMMAND[2:]]}}, "name the code under files"),
        ({"trainer": {"metrics": None}}, "nothing says where the command writes its loss"),
        ({"trainer": {"metrics": "../log.jsonl"}}, "a path inside {out}"),
        ({"trainer": {"metrics": "{out}/log.jsonl"}}, "a path inside {out}, as seen from there"),
        *(
            ({"trainer": {"checkpoint": pattern}}, "a pattern of files inside {out}")
            for pattern in ("ckpt**.json", ".", "", "~/x", "**/a/**")
        ),
        ({"trainer": {"command": [sys.executable, __file__, *COMMAND[2:]]}}, "name it as seen from"),
        ({"trainer": {"unit": "bits-per-byte"}}, "needs bytes_per_token"),
        ({"trainer": {"stop_signal": "SIGKILL"}}, "a signal that can be caught"),
        ({"trainer": {"function": "mine.train:main"}}, "function: unknown key"),
        ({"fields": {"dropout": "float", "momentum": "str"}}, "fields.momentum: 'str'; allowed: float"),
        (
            {"trainer": {"command": "python train.py {seed}"}},
            "command: 'python train.py {seed}'; allowed: a list",
        ),
        ({"arms": {"a": {"dropuot": 0.1}}}, "is declared under fields, with its type"),
        ({"arms": {"a": {"dropout": 0.1, "weight_decay": 0.1}}}, "the command has no {weight_decay}"),
        ({"arms": {"a": {"scale_vectors": "none"}}}, "scale_vectors: unknown key"),
        ({"optimizers": ["adamw"]}, "is of our own training loop"),
        ({"trainer": {"code_version": 1.5}}, "text in quotes: 1.10 would be 1.1"),
        ({"trainer": {"n_params": "N"}}, "is a key of the result; name its file under result"),
        ({"trainer": {"resume": "--resume {out}/c", "checkpoint": "c"}}, "one text is one word"),
        ({"trainer": {"metrics": "logs/*.jsonl"}}, "one file inside {out}"),
        ({"trainer": {"files": ["/"]}}, "allowed: the name of a file or a folder, or a pattern"),
        (
            {"ladder": [{"name": "s", "width": 8}], "n_params": "width^2"}
            | {"arms": {"a": {"width": 9, "dropout": 0.0}, "b": {"dropout": 0.1}}},
            "arms.a.width: the formula n_params rests on it",
        ),
        ({"grid": {"width": [8, 16]}}, "ladder[0].width: the field is chosen by grid too"),
        ({"fields": {"dropout": ["a", "b"]}}, "fields.dropout: ['a', 'b']; allowed"),
        (
            {"fields": {"dropout": "float", "kind": "str"}, "tune": {"kind": ["a", "b"], "seeds": [100]}},
            "tune.kind: is declared as str; numbers are tuned",
        ),
        (
            {"tokens_per_parameter": None, "tokens": [9000], "ladder": TWINS},
            "ladder[1]: the command gets no other words than at s, another size",
        ),
        ({"tokens_per_parameter": [20, 20.00001]}, "20.00001 has the same trials as s; allowed: one"),
        ({"trial": {"batch_tokens": 10**6, "learning_rate": 0.1}}, "at most the budget of 20,000 tokens"),
        (
            {"exclude": [{"arm": "plain"}], "compare": {"reference": "plain"}},
            "drops every trial of the reference",
        ),
        ({"ladder": [{"name": "s", "width": 8}]}, "a number at the rung, or a formula n_params"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(folder: Path, changes: dict[str, Any], words: str) -> None:
    assert words in refusal(folder, **changes)


@pytest.mark.parametrize("name", ["N", "seed", "vector_decay"])
def test_a_field_that_is_called_like_a_column_of_the_results_is_refused_with_one_message(folder, name):
    fields = {"dropout": "float", name: "float"}
    message = refusal(folder, fields=fields, arms={"a": {name: 1.0}}, grid={name: [1.0]})
    words = "another name (a column of the results or a word of sweep files is called so)"
    assert message.endswith(f"fields.{name}: '{name}'; allowed: {words}")
    assert "\n" not in message


@pytest.mark.parametrize(
    "changes", [{"fields": ["dropout"]}, {"fields": None, "trainer": {"fields": {"dropout": "float"}}}]
)
def test_fields_that_are_declared_wrongly_are_told_once(folder: Path, changes: dict[str, Any]) -> None:
    assert "\n" not in refusal(folder, **changes, arms={"a": {"dropout": 0.1}})


def test_no_name_that_a_trainer_may_fill_is_refused() -> None:
    assert not RESERVED & set(TYPES_OF_COLUMNS)
