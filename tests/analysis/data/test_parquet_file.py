"""Tables in Parquet files as strangers write them."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from scalevec.analysis.data.tidy import checked, read_table
from scalevec.analysis.errors import DataError

COLUMNS = {
    "arm": pa.array(["a", "b"]),
    "n_params": pa.array([1e6, 2e6]),
    "n_tokens": pa.array([1e7, 2e7]),
    "loss": pa.array([3.0, 2.9]),
}


@pytest.fixture
def kept(tmp_path) -> Callable[..., Path]:
    def keep(metadata: bytes | None = None, **columns: Any) -> Path:
        table = pa.table(COLUMNS | columns)
        if metadata is not None:
            table = table.replace_schema_metadata({b"pandas": metadata})
        pyarrow.parquet.write_table(table, tmp_path / "table.parquet")
        return tmp_path / "table.parquet"

    return keep


@pytest.mark.parametrize(
    ("column", "names"),
    [
        (pa.array([b"a", b"b"]), ["a", "b"]),
        (pa.array([b"a", b"b"], pa.binary(1)), ["a", "b"]),
        (pa.array([b"\xff", None]), ["ff", ""]),
        (pa.array([b"a", b"b"]).dictionary_encode(), ["a", "b"]),
    ],
)
def test_bytes_are_text_or_their_digits(kept, column, names):
    assert read_table(kept(further=column)).further.fillna("").tolist() == names


def test_records_are_columns_as_in_json_lines(kept):
    pairs = pa.array([[("lr", 0.1)], [("lr", 0.2)]], pa.map_(pa.string(), pa.float64()))
    table = read_table(kept(config=pa.array([{"n": {"value": 1}}, {"n": {"value": 2}}]), given=pairs))
    assert table[["config.n", "given.lr"]].to_numpy().tolist() == [[1, 0.1], [2, 0.2]]


@pytest.mark.parametrize(
    "column", [np.array([1, 2], np.float16), pa.array([Decimal(1), Decimal(2)]), pa.array([1.0, 2.0])]
)
def test_numbers_of_other_types_are_numbers(kept, column):
    assert read_table(kept(further=pa.array(column))).further.tolist() == [1.0, 2.0]


def test_a_column_with_a_dictionary_of_its_names_is_text(kept):
    table = checked(read_table(kept(arm=COLUMNS["arm"].dictionary_encode())))
    assert table.arm.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "metadata", [b"nonsense", b'{"index_columns": ["absent"], "columns": []}', b'{"index_columns": [{}]}']
)
def test_what_pandas_keeps_beside_a_table_changes_nothing(kept, metadata):
    assert read_table(kept(metadata)).columns.tolist() == list(COLUMNS)


def test_a_table_with_two_columns_of_one_name_is_refused_in_one_line(tmp_path):
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["arm", "arm"])
    pyarrow.parquet.write_table(table, tmp_path / "table.parquet")
    with pytest.raises(DataError, match=r"table\.parquet has several columns 'arm'; allowed: one") as raised:
        read_table(tmp_path / "table.parquet")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["loss", "n_params", "seed", "further"])
def test_a_number_of_four_hundred_digits_is_asked_about(tmp_path, name):
    names = [*COLUMNS, "seed", "further"]
    rows = [["a", "1e6", "1e7", "3", "0", "1"], ["b", "2e6", "2e7", "4", "0", "1"]]
    rows[1][names.index(name)] = "9" * 400
    (tmp_path / "table.csv").write_text("\n".join(map(",".join, [names, *rows])))
    table = read_table(tmp_path / "table.csv")
    assert np.isfinite(table[name].tolist()[1])
    if name != "further":
        with pytest.raises(DataError, match=rf"column '{name}', row 2: 1.7976"):
            checked(table)


def test_a_small_file_of_texts_that_are_long_when_written_out_is_refused(kept):
    rows = {name: pa.array([column[0].as_py()] * 1000) for name, column in COLUMNS.items()}
    path = kept(**rows, note=pa.array(["x" * 1_000_000] * 1000))
    assert path.stat().st_size < 1_000_000
    with pytest.raises(DataError, match="its text has 1000001000 bytes; allowed: up to 100000000"):
        read_table(path)
