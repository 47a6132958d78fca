"""Bad input gets one message: the file, the line, the field, the value, and what is allowed."""

import re
from collections.abc import Callable

import pytest

from scalevec import sweeps
from scalevec.model.optimization import OPTIMIZERS
from scalevec.sweeps.expansion.expand import CorpusFacts, expand, identical_arms
from scalevec.sweeps.expansion.trials import Cell

# what is replaced: by what: the message after "my.yaml:LINE: " (LINE: of what is replaced)
CASES = {
    "learning_rate: [8.0e-3": {
        "learning_rte: [8": (
            "tune.learning_rte: unknown key; did you mean learning_rate? (allowed: rungs, seeds, extend,"
        )
    },
    "[8.0e-3,": {
        "['8.0e-3',": "tune.learning_rate[0]: '8.0e-3'; allowed: a number",
        "[0,": "tune.learning_rate: 0.0; allowed: a positive number",
    },
    "1024, precision": {"true, precision": "trial.batch_tokens: true; allowed: a whole"},
    "scale_vectors: none": {
        "scale_vectors: unifed": (
            "arms.none.scale_vectors: 'unifed': unknown preset; did you mean unified? (allowed: none,"
        ),
        "scale_vectors: {preset: hg, branches: two}": (
            "arms.none.scale_vectors.branches: 'two'; allowed: heterogeneous, none, shared"
        ),
    },
    "{scale_vectors: unified}": {
        "{scale_vectors: unified, evaluation_tokens: 0}": (
            "arms.unified.evaluation_tokens: 0; allowed: evaluation_tokens under trial, grid or zip (arms are"
        )
    },
    "{scale_vectors: unified} ": {
        "{<<: {scale_vectors: unified}} ": "arms.unified.'<<': merge keys are not read; write"
    },
    "{scale_vectors: none} ": {"": "arms.none: nothing; allowed: a mapping of fields"},
    "precision: float32": {
        "warmup_tokens: 1024, warmup_fraction: 0.1": (
            "trial.warmup_tokens: 1024; allowed: one of warmup_tokens and warmup_fraction"
        ),
        "keep: weights": "trial.keep: unknown key here; it stands at the top of the file",
        "warmup_fraction: 1.5": "warmup_fraction: 1.5; allowed: a number in [0, 1]",
    },
    "[tiny-25k, tiny-55k, tiny-83k": {
        "[{name: odd, width: 64, layers: 2, heads: 3}, tiny-25k, tiny-55k, tiny-83k": (
            "ladder[0].heads: 3; allowed: a divisor of the width 64"
        ),
        "[{name: odd, width: 50, layers: 2}, tiny-25k, tiny-55k, tiny-83k": (
            "ladder[0].width: 50; allowed: a multiple of 16, unless heads is given too"
        ),
        "[tiny-25, tiny-55k, tiny-83k": (
            "ladder[0]: 'tiny-25': unknown preset; did you mean tiny-25k? (allowed: tiny-25k, tiny-55k"
        ),
        "[tiny-25k, tiny-25k, tiny-55k, tiny-83k": (
            "ladder[1]: 'tiny-25k' stands in the list twice, first at [0]"
        ),
        "[tiny-25k, {name: tiny-25k, width: 64, layers: 9}, tiny-55k, tiny-83k": (
            "ladder[1]: a second rung is called tiny-25k; allowed: each name once"
        ),
        "[tiny-25k, {name: twin, width: 32, layers: 2, kv_heads: 2, feed_forward: 88}, tiny-55k, tiny-83k": (
            "ladder[1]: twin has the same trials as tiny-25k; allowed: one"
        ),
    },
    "seeds: [3, 4, 5]": {
        "grid: {beta2: []}": "grid.beta2: []; allowed: a list of at least one",
        "grid: {beta2: [0.9, 1.5]}": "grid.beta2[1]: 1.5; allowed: a number in [0, 1)",
        "seeds: [3]\nbatch_tokens: 512": "batch_tokens: unknown key here; it stands under trial",
        "seeds: [0, 0]": "seeds[1]: 0 stands in the list twice, first at [0]",
        "seeds: [-1]": "seeds[0]: -1; allowed: 0 or more",
        "zip: {beta1: [0.9], beta2: [0.9, 0.95]}": (
            "zip: lists of different lengths: beta1 has 1, beta2 has 2"
        ),
        "simulate: {arms: {unifed: {gain: 1.05}}}": (
            "simulate.arms.unifed: no such arm; did you mean unified? (allowed: baseline, none, unified)"
        ),
    },
    "[8.0e-3, 2.0e-2, 5.0e-2]": {"[8.0e-3]": "tune.learning_rate: [0.008]; allowed: two values or more"},
    "[8.0e-3, 2.0e-2,": {
        "[8.0e-3, 0.008,": "tune.learning_rate[1]: 0.008 stands in the list twice, first at [0]"
    },
    "batch_tokens: 1024": {
        "batch_tokens: 1024, evaluation_tokens: -1": "trial.evaluation_tokens: -1; allowed: zero (all) or",
        "batch_tokens: 1000": "trial.batch_tokens: 1000; allowed: a multiple of sequence_length 128",
    },
    "none:     {scale_vectors: none}": {
        "baseline: {scale_vectors: none}": "arms.baseline: given twice; the first is in line ",
        "'<b>':    {scale_vectors: none}": (
            "arms.'<b>': '<b>'; allowed: 1 to 40 letters, digits or signs of . _ + -"
        ),
    },
    "seeds: [100]": {
        "seeds: [100, 3]": "tune.seeds[1]: 3; allowed: seeds that are not among the comparison's"
    },
    "rungs: [tiny-25k,": {"rungs: [tiny-200k,": "tune.rungs[0]: 'tiny-200k': not in ladder"},
    "reference: baseline": {
        "reference: basline": (
            "compare.reference: 'basline': no such arm; did you mean baseline? (allowed: baseline, none"
        )
    },
    "margin: 0.005": {
        "margin: 0.005, where: n_params >": "compare.where: 'n_params >'; allowed: a condition on columns",
        "margin: 0": "compare.margin: 0.0; allowed: a number of nats/token above zero, or none",
        "predict: [{arm: unifid, sign: lower}]": (
            "compare.predict[0].arm: 'unifid': no such arm; did you mean unified? (allowed: "
        ),
        "predict: [{arm: baseline, sign: lower}]": (
            "compare.predict[0].arm: 'baseline'; allowed: another arm than its reference, baseline"
        ),
        "predict: [{arm: none, difference: 0.1}]": (
            "compare.predict[0]: difference and interval belong together; allowed: both, or sign without them"
        ),
        "predict: [{arm: none, difference: 0.1, interval: [0.2, 0.3]}]": (
            "compare.predict[0].interval: [0.2, 0.3]; allowed: two numbers [low, high] with the "
            "difference, 0.1,"
        ),
    },
    "seed: 5}": {
        "seed: 7}": "exclude[0].seed: 7 matches no trial of the sweep",
        "sead: 4}": (
            "exclude[0].sead: unknown field; did you mean seed? (allowed: arm, rung, seed, stage, optimizer"
        ),
    },
    "optimizers: [adamw]": {
        "optimizers: [adam]": (f"optimizers[0]: optimizer: 'adam'; allowed: {', '.join(sorted(OPTIMIZERS))}"),
        "optimizers: [adamw, {name: muon, beta3: 0.9}]": (
            "optimizers[1].beta3: 0.9; allowed: no such option of muon; its options: learning_rate, "
            "weight_decay, clip_norm, momentum, nesterov, newton_schulz_steps, update_scale, "
            "adamw_rate_factor, beta1, beta2"
        ),
        "optimizers: [adamw, sgd]\ngrid: {beta2: [0.9, 0.95]}": (
            "grid.beta2[0]: 0.9; allowed: no such option of sgd; its options: learning_rate, "
            "weight_decay, clip"
        ),
        "optimizers: [adamw]\ngrid: {optimizer: [adamw]}": (
            "grid.optimizer: the field is chosen by optimizers too; allowed: one of the two"
        ),
    },
    "learning_rate: [8.0e-3, 2.0e-2, 5.0e-2]": {
        "weight_decay: [0, 0.1]\n  check_carried: true": (
            "tune.check_carried: true; allowed: false where learning_rate is not tuned"
        ),
        "learning_rate: [0.01, 0.02]\n  check_carried: maybe": (
            "tune.check_carried: 'maybe'; allowed: True, False or 'all'"
        ),
    },
    "schedules: [cosine]": {
        "schedules: [{name: wsd, warmup_fraction: 0.5, cooldown_fraction: 0.6}]": (
            "schedules[0].cooldown_fraction: 0.6; allowed: at most 0.5, what the warm-up of"
        )
    },
    "default: {time: auto}": {
        "tiny-26k: {time: auto}": "resources.tiny-26k: no such rung; did you mean tiny-25k?"
    },
    "time: auto": {
        "time: soon": "resources.default.time: 'soon'; allowed: auto, or a positive number of minutes"
    },
    "name: quickstart": {"name: ../x": "name: '../x'; allowed: 1 to 80 letters"},
    "{bpe: 1024}": {
        "words": (
            "corpus.tokenizer: 'words'; allowed: bytes, {bpe: SIZE OF THE VOCABULARY}, {file: tokenizer.json}"
        ),
        "{bpe: 256}": "corpus.tokenizer.bpe: 256; allowed: more than 256",
    },
}
ELSEWHERE = [
    ("learning_rate: [8.0e-3, 2.0e-2, 5.0e-2]", "", "tune: names no field to tune", "tune:"),
    (
        "{rung: tiny-150k, seed: 5}",
        "{schedule: cosine}",
        "exclude: drops every trial; nothing is left",
        "exclude:",
    ),
    (
        "margin: 0.005",
        "looks: [1]",
        "seeds: [3, 4, 5]; allowed: at most as many seeds as the last of compare.looks (1)",
        "seeds: [3, 4, 5]",
    ),
    ("name: quickstart", "keep: all", "name: missing; the field has no default", "name:"),
    (
        "seeds: [3, 4, 5]",
        "grid: {beta1: [" + ", ".join(f"0.{i}" for i in range(100, 900)) + "], beta2: [0.1, 0.2, 0.3]}\n"
        "seeds: [" + ", ".join(map(str, range(1000, 1100))) + "]",
        "about 2966400 trials; allowed: at most 250000 in one sweep",
        "name:",
    ),
]
"""Where the problem is in another line than the change: that of the last field."""


IN_PLACE = [(old, new, message, old) for old, group in CASES.items() for new, message in group.items()]


@pytest.mark.parametrize(("old", "new", "expected", "faulty"), [*IN_PLACE, *ELSEWHERE])
def test_bad_input_is_refused_with_its_place_and_what_is_allowed(
    old, new, expected, faulty, changed, line_of, refusal
):
    message = refusal(changed(old, new))
    actual = [line for line in message.splitlines() if expected in line]
    assert actual, message
    line = int(re.match(r"my\.yaml:(\d+): ", actual[0])[1])  # type: ignore[index]
    assert abs(line - line_of(faulty)) <= new.count("\n")


@pytest.mark.parametrize("text", ["", "# nothing", "[1, 2]", "just words", "3"])
def test_yaml_that_is_not_a_mapping_is_refused(text: str, refusal: Callable[[str], str]) -> None:
    assert "allowed: a mapping of fields (name, ladder, arms)" in refusal(text)


def test_all_problems_are_told_at_once_in_the_order_of_the_lines(quickstart, refusal):
    text = quickstart.replace("margin: 0.005", "margin: -1").replace("name: quickstart", "name: a b")
    assert [line.split(": ")[1] for line in refusal(text).splitlines()] == ["name", "compare.margin"]


def test_a_key_that_is_misspelt_is_not_missing_too(refusal: Callable[[str], str]) -> None:
    message = refusal("name: a\nladder: [{name: a, widht: 16, layers: 1}]\narms: {a: {}}")
    assert re.fullmatch(r"my.yaml:\d+: ladder.0..widht: unknown key; did you mean width.*", message)
    another = "ladder: [{name: a, widht: 16, layers: 1}, {name: b, layers: 1}]"
    assert "ladder[1].width" in refusal(f"name: a\n{another}\narms: {{a: {{}}}}")


def test_a_flood_of_problems_is_cut_short(refusal: Callable[[str], str]) -> None:
    message = refusal("{" + ", ".join(f"x{i}: 1" for i in range(100)) + "}")
    assert len(message.splitlines()) == 21
    assert message.endswith("... and 83 more problems")


def test_a_hostile_value_is_printed_escaped_and_short(refusal: Callable[[str], str]) -> None:
    message = refusal('name: "\\e[31m' + "x" * 10_000 + '"\n"\\e]0;": 1\nladder: [tiny-25k]\narms: {a: {}}')
    assert message.isprintable() or message.replace("\n", "").isprintable()
    assert max(map(len, message.splitlines())) < 400


def test_a_corpus_too_small_for_one_batch_is_refused(quickstart: str) -> None:
    sweep = sweeps.loads(quickstart, "my.yaml")
    message = r"corpus: 1024 training tokens are too few .* batch_tokens, 1024"
    with pytest.raises(sweeps.SweepError, match=message):
        expand(sweep, CorpusFacts("c0" * 32, 1024, 1024))


def test_corpus_files_are_looked_up_beside_the_sweep_file(tmp_path, changed):
    (tmp_path / "texts").mkdir()
    for name in ("b.txt", "a.txt"):
        (tmp_path / "texts" / name).write_text("text")
    path = tmp_path / "my.yaml"
    path.write_text(changed("source: python-stdlib", "source: text, files: ['texts/*.txt', texts/a.txt]"))
    files = sweeps.load(path).corpus_files()
    assert files == [tmp_path / "texts" / "a.txt", tmp_path / "texts" / "b.txt"]


def test_arms_that_are_identical_in_some_cells_only_are_told_so(cells_of: Callable[..., list[Cell]]) -> None:
    arms = {name: {"scale_vectors": name} for name in ("baseline", "baseline-no-decay")}
    assert identical_arms(cells_of(arms=arms, grid={"weight_decay": [0.0, 0.1]})) == [
        "arms baseline and baseline-no-decay are identical by construction in 1 of 2 cells: "
        "each trial is run once for both"
    ]
