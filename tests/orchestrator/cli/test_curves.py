"""Tables with rows along runs: of each run its end is compared, read as they are or through import."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from support import assert_refused, succeeded

HEADER = "run,arm,seed,n_params,n_tokens,step,lr,val_loss"
ENDS = {"a": 3.5, "b": 3.52}
"""Arm ``b`` is lower at every checkpoint but the last."""


def line(arm: str, seed: int, step: int, *, run: bool, seen: bool, loss: object = None) -> str:
    lead = 0 if step == 400 else 0.4 if arm == "b" else 0
    end = ENDS[arm] + 0.0037 * seed + 1.1e-4 * seed**2 * (1 if arm == "a" else -1)
    cells = [f"{arm}-{seed}" if run else "", arm, seed, 10**7, step * 500_000 if seen else 2 * 10**8, step]
    told = f"{end + (400 - step) / 200 - lead:.6f}" if loss is None else loss
    return ",".join(map(str, [*cells, (500 - step) / 1e5, told]))


def curves(
    *, run: bool = True, seen: bool = True, loss: Callable[[str, int, int], object] = lambda *_: None
) -> str:
    """Four runs of each of two arms; ``loss`` is given, or left to the curve, by arm, seed and step."""
    rows = (
        line(arm, seed, step, run=run, seen=seen, loss=loss(arm, seed, step))
        for arm in ENDS
        for seed in range(4)
        for step in (100, 200, 300, 400)
    )
    lines = [HEADER, *(row for row in rows if not row.endswith("gone"))]
    return "\n".join(lines if run else [row.partition(",")[2] for row in lines]) + "\n"


def with_ids(text: str) -> list[str]:
    rows = (row.partition(",")[2] for row in text.splitlines()[1:])
    return [f"{number * 7919 % 10007:x},{row}" for number, row in enumerate(rows)]


CURVES = {
    "with an id of each row": "\n".join([HEADER.replace("run", "uuid"), *with_ids(curves())]) + "\n",
    "with runs and the tokens seen": curves(),
    "with the tokens seen": curves(run=False),
    "with the tokens planned": curves(run=False, seen=False),
    "with runs and the tokens planned": curves(seen=False),
    "evaluated now and then": curves(run=False, loss=lambda arm, seed, step: None if step > 300 else ""),
}


@pytest.fixture(params=["as it is", "imported"])
def compared(request, command, tmp_path) -> Callable[..., Any]:
    """Compares the arms of a table: the difference and the verdict, or a fact; or what was refused."""

    def call(text: str, fact: str = "") -> Any:
        (tmp_path / "log.csv").write_text(text)
        source = "log.csv"
        if request.param == "imported":
            taken = command("import", "log.csv", "-o", "tidy.csv")
            if taken.returncode:
                return 0.0, taken.stderr
            source = "tidy.csv"
        done = command("compare", source, "--reference", "a", "--json")
        if done.returncode:
            return 0.0, done.stderr
        (arm,) = json.loads(done.stdout)
        if fact:
            return arm[fact]
        return arm["loss_difference"]["mean"], arm["verdict"]

    return call


@pytest.mark.parametrize("text", CURVES.values(), ids=CURVES)
def test_the_end_of_each_run_is_compared(compared, text):
    difference, verdict = compared(text)
    assert difference == pytest.approx(0.02 - 2.2e-4 * (0 + 1 + 4 + 9) / 4, abs=1e-6)
    assert verdict == "worse"


@pytest.mark.parametrize(("blank", "at"), [("", (200, 300)), ("nan", (100, 300))])
def test_steps_without_an_evaluation_are_no_ends_and_the_last_evaluation_is(compared, blank, at):
    difference, verdict = compared(curves(loss=lambda *row: None if row[-1] in at else blank))
    assert (round(difference, 2), verdict) == (-0.38, "better")


@pytest.mark.parametrize("written", ["nan", ""])
def test_a_run_that_ends_without_a_loss_where_others_have_one_diverged(compared, written):
    at_end = {("b", 1, 400): written}
    assert compared(curves(loss=lambda *row: at_end.get(row)))[1] == "worse"
    end = {("b", 1, 400): written, **{("b", seed, step): "3.1" for seed in (0, 2, 3) for step in (300, 400)}}
    assert compared(curves(loss=lambda *row: end.get(row)))[1] == "undecided"


def test_curves_of_planned_tokens_that_end_at_different_steps_are_refused(compared):
    cut = curves(
        run=False, seen=False, loss=lambda arm, _, step: "gone" if (arm, step) == ("b", 400) else None
    )
    assert "arm b, seed 0 of 1e+07 parameters at 300, others at 400" in compared(cut)[1]


def test_curves_of_several_planned_budgets_are_runs_of_each(compared):
    budgets = [curves(run=False, seen=False).replace(str(2 * 10**8), str(n * 10**8)) for n in (2, 4, 8)]
    rows = [line for text in budgets for line in text.splitlines()[1:]]
    text = "\n".join([budgets[0].splitlines()[0], *rows]) + "\n"
    assert compared(text)[0] == pytest.approx(compared(budgets[0])[0])
    assert compared(text, "pairs") == 12


def test_a_row_of_training_beside_that_of_an_evaluation_is_no_end(compared):
    lines = curves().splitlines()
    both = [row for line in lines[1:] for row in (line, f"{line.rpartition(',')[0]},")]
    assert compared("\n".join([lines[0], *both]) + "\n") == compared(curves())


@pytest.mark.parametrize(
    ("other", "loss"), [("loss", "val_loss"), ("loss_validation", "val_loss"), ("loss", "Loss")]
)
def test_a_loss_beside_another_is_not_taken_unasked(command, tmp_path, other, loss):
    (tmp_path / "two.csv").write_text(curves().replace("lr,val_loss", f"{other},{loss}"))
    assert_refused(command("compare", "two.csv", "--reference", "a"), 2, "loss may be ", loss, other)
    assert command("compare", "two.csv", "--reference", "a", "--map", f"loss={loss}").returncode == 0


def test_remarks_above_and_below_a_table_are_no_rows(compared):
    assert compared(f"# exported 2024-01-01, by me\n# at 10\n{curves()}# end; of 2, 3\n") == compared(
        curves()
    )


def test_the_names_of_another_tracker_choose_rows_of_an_import(command, tmp_path):
    (tmp_path / "log.csv").write_text(curves())
    taken = command("import", "log.csv", "--where", "step == 400")
    assert (taken.returncode, len(taken.stdout.splitlines())) == (0, 9)


@pytest.mark.parametrize(
    ("given", "written", "remedy"),
    [
        ("a-0,a,", "a-0,,", "column 'arm' is blank in 4 rows (1, 2, 3, 4)"),
        ("3.500000", '"3,512"', "'3,512' may be 3.512 or 3512"),
        ("a-0,a,0,10000000", "a-0,a,0,", "column 'n_params', rows 1, 2, 3, 4: blank or nan"),
        ("a-0,a,0,10000000", "a-0,a,0,", "Leave rows that are no runs out: --where 'n_params > 0'"),
    ],
)
def test_what_cannot_be_read_is_asked_about(command, tmp_path, given, written, remedy):
    (tmp_path / "log.csv").write_text(curves().replace(given, written))
    assert_refused(command("compare", "log.csv", "--reference", "a"), 2, remedy)


ENDED = "arm,seed,n_params,n_tokens,{},val_loss"


def ended(column: str, *, at: dict[str, Any], tokens: int = 2 * 10**8, more: str = "") -> str:
    """Four runs of each arm, a row each, that made so many steps."""
    losses = {(arm, seed): ENDS[arm] + 0.0037 * seed for arm in ENDS for seed in range(4)}
    rows = [f"{arm},{seed},{10**7},{tokens},{at[arm]},{loss:.5f}" for (arm, seed), loss in losses.items()]
    return "\n".join([ENDED.format(column), *rows, more]) + "\n"


@pytest.mark.parametrize("column", ["epoch", "trainer/global_step", "current_step", "Tokens seen"])
def test_runs_that_stopped_before_others_of_their_size_are_no_ends_in_a_row_each(compared, column):
    _, refused = compared(ended(column, at={"a": 800, "b": 1000}))
    assert "arm a, seed 0 of 1e+07 parameters at 800, others at 1000" in refused
    assert "--map steps=n_tokens" in refused
    assert compared(ended(column, at={"a": 1003, "b": 1000}))[1] == "worse"


def test_arms_of_two_batch_sizes_make_other_numbers_of_steps(compared):
    text = ended("step", at={"a": 800, "b": 400}).replace(",val_loss", ",val_loss,batch_size")
    text = "".join(f"{row},{512 if ',400,' in row else 256}\n" for row in text.splitlines()[1:] if row)
    assert compared(ENDED.format("step") + ",batch_size\n" + text)[1] == "worse"


def test_a_run_that_wrote_nan_and_stopped_diverged_at_its_size(compared):
    stopped = curves(loss=lambda arm, _, step: {300: "nan", 400: "gone"}.get(step) if arm == "b" else None)
    assert compared(stopped)[1] == "undecided"
    assert compared(stopped, "at_sizes")["code"] == "none"


def test_losses_of_the_training_text_among_others_are_asked_about_by_the_column_that_says_so(compared):
    lines = curves().splitlines()
    mixed = [lines[0] + ",split", *(f"{row},{'train' if ',400,' in row else 'val'}" for row in lines[1:])]
    expected = "'split' has losses of val and train: one kind is compared; --where \"`split` == 'val'\""
    assert expected in compared("\n".join(mixed) + "\n")[1]


def test_steps_that_a_resumed_run_made_again_on_its_way_are_no_other_ends(compared):
    again = line("a", 1, 200, run=True, seen=True, loss=4.44)
    assert compared(curves() + again + "\n") == compared(curves())


@pytest.mark.parametrize("seed", ["mean", "avg(3)", "mean±std", "Mittelwert"])
def test_a_row_of_means_is_no_seed(compared, seed):
    mean = f"a,{seed},{10**7},{2 * 10**8},1000,3.5056"
    expected = f'row 9: {seed!r} is no run\'s; leave such rows out: --where "seed != {seed!r}"'
    assert expected in compared(ended("step", at={"a": 1000, "b": 1000}, more=mean))[1]


def test_a_law_is_fitted_to_the_ends_of_runs_whose_tokens_are_those_planned(command, tmp_path):
    first, others = curves(run=False, seen=False), ((20_000_000, ",3."), (40_000_000, ",2."))
    more = [first.partition("\n")[2].replace(str(10**7), str(size)).replace(",3.", at) for size, at in others]
    (tmp_path / "log.csv").write_text(first + "".join(more))
    fit = command("fit", "log.csv", "--law", "power", "--x", "N")
    assert fit.stdout.count("12 points, 12 independent runs") == 2
    assert fit.stdout.count("left out: 36 before the end of its run") == 2


def test_words_in_a_column_of_numbers_that_no_answer_needs_leave_it_unread(compared):
    assert compared(ended("Duration", at={"a": "1.2h", "b": "58min"}))[1] == "worse"


def test_a_rate_in_two_precisions_is_one_and_a_given_one_decides(compared, command):
    assert compared(ended("lr", at={"a": 0.001, "b": 0.0010000000474974513}))[1] == "worse"
    last = ended("lr", at={"a": 1e-5, "b": 1e-5}).replace(
        "b,3,10000000,200000000,1", f"b,3,{10**7},200000000,2"
    )
    assert "by --map learning_rate=COLUMN what the rate is" in compared(last)[1]
    two_rates = ended("learning_rate", at={"a": 0.001, "b": 0.002})
    assert compared(two_rates)[1] == "worse"  # each arm has its own: no setting that a pair shares
    succeeded(command("compare", "log.csv", "--reference", "a", "--map", "learning_rate=0.001"))


@pytest.mark.parametrize("name", ["val_z_loss", "eval_aux_loss", "best_val_loss"])
def test_what_may_be_no_loss_of_the_next_token_is_asked_about(command, tmp_path, name):
    text = ended("step", at={"a": 1000, "b": 1000}).replace("val_loss", name)
    (tmp_path / "log.csv").write_text(text)
    words = ("compare", "log.csv", "--reference", "a")
    assert_refused(command(*words), 2, f"loss may be {name}, of held-out text: --map loss=COLUMN")
    succeeded(command(*words, "--map", f"loss={name}"))
