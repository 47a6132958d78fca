import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalevec.analysis import compare, fit
from scalevec.analysis.data.where import computed, select
from scalevec.analysis.errors import DataError

TABLE = pd.DataFrame(
    {"loss": [2.0, 3.0, 4.0, float("nan")], "arm": ["a", "b", "a", "c"], "excluded": [0, 0, 1, 0]}
)


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        ("loss < 3.5", [0, 1]),
        ("arm == 'a' or loss == 3", [0, 1, 2]),
        ("2 < loss <= 4", [1, 2]),
        ("loss * 2 - 1 >= -5 + 10", [1, 2]),
        ("6 / loss > 1.9 and arm != 'b'", [0]),
        ("arm in ('a', 'c')", [0, 2, 3]),
        ("arm not in ['a'] and excluded in (0, 1)", [1, 3]),
        ("`arm` == '`a`' or `arm` == 'b'", [1]),
    ],
)
def test_an_expression_selects_rows(expression: str, rows: list[int]):
    pd.testing.assert_frame_equal(select(TABLE, expression), TABLE.iloc[rows])


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "loss.__class__ == 1",
        "[x for x in loss]",
        "(lambda: 1)() == 1",
        "arm in (arm, 'a')",
        "loss < `",
        "arm is 'a'",
        "9 ** 9 ** 9 > loss",
        "@loss",
        "",
        "(" * 500 + "loss" + ")" * 500,
        "loss > 1" + " and loss > 1" * 300,
        "loss > \0",
    ],
)
def test_anything_but_a_comparison_of_columns_is_refused(expression: str):
    with pytest.raises(DataError, match=r"^where "):
        select(TABLE, expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("los < 3", "no column 'los'; nearest: 'loss'"),
        ("arm < 3", "compares text with a number"),
        ("loss == 'a'", "compares text with a number"),
        ("loss + 1", "neither true nor false"),
        ("arm * 100000 == 'a'", "is text; arithmetic takes numbers"),
        ("loss > 100", "leaves none of the 4 rows"),
        ("0/0", "arithmetic fails"),
        ("loss < " + "9" * 400 + " * 1", "arithmetic fails"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused_with_the_reason(expression: str, message: str):
    with pytest.raises(DataError, match=message):
        select(TABLE, expression)


def test_a_column_whose_name_is_no_plain_name_stands_in_backticks():
    table = TABLE.rename(columns={"loss": "train/loss", "arm": "of arm"})
    assert len(select(table, "`train/loss` < 3.5 and `of arm` in ('b', 'c')")) == 1
    with pytest.raises(DataError, match=r"no column 'train/los'; nearest: 'train/loss'"):
        select(table, "`train/los` < 3")
    with pytest.raises(DataError, match=r"'train/loss < 1 < of arm' compares text"):
        select(table, "`train/loss` < 1 < `of arm`")


@pytest.mark.parametrize(
    "values",
    [pd.to_datetime(["2024-01-01", "2024-01-02"]), [1, "b"], [[1], [2, 3]], pd.Categorical(["low", "high"])],
)
def test_what_has_no_order_that_a_person_can_mean_is_not_ordered(values):
    table = pd.DataFrame({"when": values})
    with pytest.raises(DataError, match="orders text or dates"):
        select(table, "when < '2024-01-02'")
    assert len(select(table, "when != 'none'")) == 2


def test_a_date_is_equal_to_its_text():
    table = pd.DataFrame({"when": pd.to_datetime(["2024-01-01", "2024-01-02", None])})
    assert len(select(table, "when == '2024-01-02 00:00:00'")) == 1


@given(st.text(max_size=60))
def test_any_text_selects_rows_or_is_refused_with_a_message(text: str):
    try:
        rows = len(select(TABLE, text))
    except DataError as error:
        message = str(error)
    else:
        message = f"where: {rows} rows"
        assert 0 < rows <= len(TABLE)
    assert message.startswith("where")


def test_a_missing_value_of_a_nullable_column_compares_as_false():
    table = pd.DataFrame({"seed": pd.array([0, 1, None], "Int64"), "arm": pd.array(["a", None, "b"], "str")})
    assert select(table, "seed >= 0")["seed"].tolist() == [0, 1]
    assert select(table, "arm == 'b'").index.tolist() == [2]


def test_a_word_among_numbers_is_none_of_them():
    table = pd.DataFrame({"loss": ["3.1", "three", None, "2.9"]})
    assert select(table, "loss > 0").index.tolist() == [0, 3]
    assert select(table, "loss * 2 in (6.2, 1)").index.tolist() == [0]


def test_what_is_computed_from_a_word_is_that_word():
    assert computed(pd.DataFrame({"a": ["1", "two", "3"]}), "a * 2").tolist() == [2, "two", 6]


@pytest.mark.parametrize("ask", [fit, lambda rows: compare(rows, "a")])
@pytest.mark.parametrize("rows", ["results.csv", [{"loss": 3.0}]])
def test_what_is_no_table_is_told_how_it_becomes_one(ask, rows):
    with pytest.raises(DataError, match=r"(str|list) is no table; scalevec.read_table makes one of a file"):
        ask(rows)
