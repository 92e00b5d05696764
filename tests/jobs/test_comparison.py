"""The cheap proof of equality says yes only where two tables are equal bit by bit."""

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.comparison import BATCH_ROWS, compare, identical, out_of_order, parts, row_json


def write(folder: Path, *tables: pa.Table) -> list[Path]:
    folder.mkdir(exist_ok=True)
    for i, table in enumerate(tables):
        pq.write_table(table, folder / f"part-{i:05d}.parquet")
    return parts(folder)


def rows(n: int) -> pa.Table:
    return pa.table({"seq": pa.array(range(n), pa.int64()), "sub": pa.array([0] * n, pa.int64())})


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (pa.array([0.0]), pa.array([-0.0]), False),
        (pa.array([math.nan]), pa.array([math.nan]), True),
        (pa.array([1.0, None]), pa.array([1.0, None]), True),
        (pa.array([1.0, None]), pa.array([None, 1.0]), False),
        (pa.array([[0.0], []]), pa.array([[-0.0], []]), False),
        (pa.array([[1.0], [2.0]]), pa.array([[1.0, 2.0], []]), False),
        (pa.array([[math.nan]]), pa.array([[math.nan]]), True),
        (pa.array([{"k": 1, "v": 0.0}]), pa.array([{"k": 1, "v": -0.0}]), False),
        (pa.array([b"a"]), pa.array([b"b"]), False),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), pa.array([[1, 2]], pa.list_(pa.int64(), 2)), True),
    ],
)
def test_identical_is_bit_by_bit(a: pa.Array, b: pa.Array, same: bool) -> None:
    assert identical(a, b) is same


def test_sliced_arrays_are_compared_by_their_own_values() -> None:
    whole = pa.array([[1.0], [2.0, 3.0], [4.0]])
    assert identical(whole.slice(1, 2), pa.array([[2.0, 3.0], [4.0]]))
    assert not identical(whole.slice(1, 2), pa.array([[2.0, 3.0], [5.0]]))


def test_how_rows_are_spread_over_files_does_not_matter(tmp_path: Path) -> None:
    table = rows(BATCH_ROWS + 10)
    one = write(tmp_path / "a", table)
    several = write(tmp_path / "b", table.slice(0, 7), table.slice(7, 0), table.slice(7))
    facts = compare(one, several, ["seq", "sub"])
    assert facts["different"] == 0
    assert facts["expected_rows"] == facts["actual_rows"] == BATCH_ROWS + 10
    assert facts["out_of_order"] == 0


def test_rows_that_line_up_are_compared_one_by_one(tmp_path: Path) -> None:
    values = pa.table({"seq": range(4), "sub": [0] * 4, "l": [[1.0], [0.0], None, [2.0]], "f": [1.0, 2.0, None, 4.0]})
    other = pa.table({"seq": range(4), "sub": [0] * 4, "l": [[1.0], [-0.0], None, [2.0]], "f": [1.0, 2.0, 3.0, 4.0]})
    facts = compare(write(tmp_path / "a", values), write(tmp_path / "b", other), ["seq", "sub"])
    assert facts["different"] == 2
    assert [(row["seq"], row["actual"]) for row in facts["rows"]] == [
        (1, '{"f":2.0,"l":[-0.0],"seq":1,"sub":0}'),
        (2, '{"f":3.0,"l":null,"seq":2,"sub":0}'),
    ]


def test_rows_that_do_not_line_up_are_left_to_the_join(tmp_path: Path) -> None:
    a = write(tmp_path / "a", rows(5))
    assert compare(a, write(tmp_path / "b", rows(4)), ["seq", "sub"])["different"] is None
    assert compare(a, write(tmp_path / "c", rows(5).take([0, 1, 2, 4, 3])), ["seq", "sub"])["different"] is None


def test_order_is_followed_over_batches_and_files(tmp_path: Path) -> None:
    table = rows(BATCH_ROWS + 10)
    swapped = table.take([*range(BATCH_ROWS - 1), BATCH_ROWS, BATCH_ROWS - 1, *range(BATCH_ROWS + 1, BATCH_ROWS + 10)])
    files = write(tmp_path / "a", swapped.slice(0, BATCH_ROWS), swapped.slice(BATCH_ROWS))
    assert out_of_order(files) == (1, [BATCH_ROWS])


def test_parts_are_ordered_by_number(tmp_path: Path) -> None:
    for name in ("part-10.parquet", "part-9.parquet", ".part-0.parquet", "_x.parquet"):
        (tmp_path / name).touch()
    assert [p.name for p in parts(tmp_path)] == ["part-9.parquet", "part-10.parquet"]


def test_large_and_plain_binary_are_one_type(tmp_path: Path) -> None:
    a = write(tmp_path / "a", pa.table({"key": pa.array([b"x"], pa.binary())}))
    b = write(tmp_path / "b", pa.table({"key": pa.array([b"x"], pa.large_binary())}))
    assert compare(a, b, [])["different"] == 0


def test_a_truncated_file_is_a_fault_not_a_crash(tmp_path: Path) -> None:
    a = write(tmp_path / "a", rows(5))
    b = write(tmp_path / "b", rows(5))
    b[0].write_bytes(b[0].read_bytes()[:-20])
    facts = compare(a, b, ["seq", "sub"])
    assert facts["different"] is None
    assert "cannot be read" in facts["faults"][0]


def test_rows_read_like_text() -> None:
    row = {"b": b"word", "a": 1, "n": math.nan, "x": b"\xff", "l": [b"y"], "f": -math.inf}
    assert row_json(row) == '{"a":1,"b":"word","f":"-Infinity","l":["y"],"n":"NaN","x":"0xff"}'
    assert row_json(None) is None
