"""The comparison of two tables by a Spark task: equal, a list of wrong rows, or left to a join."""

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.comparison import BATCH_ROWS, compare, row_json
from streaming_core.data.parts import Parts, part_path


def write(folder: Path, *tables: pa.Table) -> Parts:
    folder.mkdir(exist_ok=True)
    for i, table in enumerate(tables):
        pq.write_table(table, part_path(folder, i))
    return Parts.of(folder)


def rows(n: int) -> pa.Table:
    return pa.table({"seq": pa.array(range(n), pa.int64()), "sub": pa.array([0] * n, pa.int64())})


def test_distribution_of_rows_over_files_does_not_matter(tmp_path):
    table = rows(BATCH_ROWS + 10)
    file = write(tmp_path / "a", table)
    several = write(tmp_path / "b", table.slice(0, 7), table.slice(7, 0), table.slice(7))
    facts = compare("outputs", file, several)
    assert (facts["counts"], facts["faults"], facts["out_of_order"]) == ({}, [], 0)
    assert facts["expected_rows"] == facts["actual_rows"] == BATCH_ROWS + 10


def test_aligned_rows_are_compared_one_by_one(tmp_path):
    values = pa.table({"seq": range(4), "sub": [0] * 4, "l": [[1.0], [0.0], None, [2.0]], "f": [1.0, 2.0, None, 4.0]})
    other = pa.table({"seq": range(4), "sub": [0] * 4, "l": [[1.0], [-0.0], None, [2.0]], "f": [1.0, 2.0, 3.0, 4.0]})
    facts = compare("outputs", write(tmp_path / "a", values), write(tmp_path / "b", other))
    assert facts["counts"] == {"different": 2}
    assert [(row["kind"], row["seq"], row["expected"], row["actual"]) for row in facts["rows"]] == [
        ("different", 1, '{"f":2.0,"l":[0.0],"seq":1,"sub":0}', '{"f":2.0,"l":[-0.0],"seq":1,"sub":0}'),
        ("different", 2, '{"f":null,"l":null,"seq":2,"sub":0}', '{"f":3.0,"l":null,"seq":2,"sub":0}'),
    ]


def test_unaligned_rows_are_left_to_the_join(tmp_path):
    a = write(tmp_path / "a", rows(5))
    assert compare("outputs", a, write(tmp_path / "b", rows(4)))["counts"] is None
    assert compare("outputs", a, write(tmp_path / "c", rows(5).take([0, 1, 2, 4, 3])))["counts"] is None


def test_unordered_rows_are_counted_in_place(tmp_path):
    columns = {"times": [1, 2, 2, 3], "few": pa.FixedSizeListArray.from_arrays(pa.array([0.0] * 8), 2)}
    table = rows(4).append_column("times", [columns["times"]]).append_column("few", columns["few"])
    a, b = write(tmp_path / "a", table), write(tmp_path / "b", table.take([3, 0, 0, 1]))
    facts = compare("outputs", a, b, ["times", "few"])
    assert facts["counts"] == {"missing": 1, "extra": 1}
    assert facts["rows"] == [
        {"kind": "missing", "seq": None, "sub": None, "expected": '{"few":[0.0,0.0],"times":2}', "actual": None},
        {"kind": "extra", "seq": None, "sub": None, "expected": None, "actual": '{"few":[0.0,0.0],"times":1}'},
    ]


def test_order_is_checked_across_batches_and_files(tmp_path):
    table = rows(BATCH_ROWS + 10)
    swapped = table.take([*range(BATCH_ROWS - 1), BATCH_ROWS, BATCH_ROWS - 1, *range(BATCH_ROWS + 1, BATCH_ROWS + 10)])
    files = write(tmp_path / "a", swapped.slice(0, BATCH_ROWS), swapped.slice(BATCH_ROWS))
    facts = compare("outputs", write(tmp_path / "b", table), files)
    assert facts["out_of_order"] == 1
    [row] = facts["misplaced"]
    assert (row["kind"], row["seq"], json.loads(row["expected"])["seq"]) == ("out_of_order", BATCH_ROWS - 1, BATCH_ROWS)


def test_missing_row_on_one_side_is_a_fault(tmp_path):
    table = write(tmp_path / "a", rows(5))
    facts = compare("outputs", table, Parts([]))
    assert (facts["faults"], facts["counts"]) == (["the cell wrote no file"], {"missing": 5, "extra": 0})
    facts = compare("state:t", Parts([]), table)
    assert (facts["faults"], facts["counts"]) == (["the oracle has no such table"], {"missing": 0, "extra": 5})


def test_truncated_file_is_a_fault_not_a_crash(tmp_path):
    a = write(tmp_path / "a", rows(5))
    b = write(tmp_path / "b", rows(5))
    b.paths[0].write_bytes(b.paths[0].read_bytes()[:-20])
    [fault] = compare("outputs", a, b)["faults"]
    assert fault.startswith(f"cannot read {b.paths[0]}: ")


def test_rows_are_rendered_as_readable_json():
    row = {"b": b"word", "a": 1, "n": math.nan, "x": b"\xff", "l": [b"y"], "f": -math.inf}
    assert row_json(row) == '{"a":1,"b":"word","f":"-Infinity","l":["y"],"n":"NaN","x":"0xff"}'
    assert row_json(None) is None
