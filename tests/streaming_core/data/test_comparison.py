"""Comparing two tables equals comparing their rows bit by bit in plain Python; differences are printed."""

import math
import struct
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_core.data import comparison
from streaming_core.data.comparison import Difference, columns, in_memory, multisets, plain, row_by_row, shown, unequal
from streaming_core.data.parts import Parts

SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("sub", pa.int64()),
        ("n", pa.int8()),
        ("ok", pa.bool_()),
        ("x", pa.float64()),
        ("word", pa.binary()),
        ("few", pa.list_(pa.float64(), 2)),
        ("held", pa.list_(pa.struct([("key", pa.int64()), ("value", pa.float64())]))),
    ]
)
# The last two are NaNs that nothing but their bits tells apart.
DOUBLES = st.sampled_from([0.0, -0.0, 1.5, math.inf, math.nan, -math.nan])
VALUES = {
    "n": st.integers(0, 2),
    "ok": st.booleans(),
    "x": DOUBLES,
    "word": st.sampled_from([b"", b"a", b"\xff"]),
    "few": st.tuples(DOUBLES, DOUBLES).map(list),
    "held": st.lists(st.fixed_dictionaries({"key": st.integers(0, 1), "value": DOUBLES}), max_size=2),
}
KEY = ("seq", "sub")


@st.composite
def pairs(draw):
    """Ordered rows of an oracle, and rows of a run: a selection in another order, with changes, repeats and others."""
    keys = sorted(draw(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=6)))
    expected = [dict(zip(KEY, key, strict=True)) | draw(st.fixed_dictionaries(VALUES)) for key in keys]
    actual = [dict(row) for row in expected]
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from([*VALUES, "drop", "repeat", "move", "other"]))
        if name == "other":
            actual.append({"seq": 9, "sub": draw(st.integers(0, 1))} | draw(st.fixed_dictionaries(VALUES)))
        elif actual:
            at = draw(st.integers(0, len(actual) - 1))
            if name in ("drop", "move"):
                row = actual.pop(at)
            if name in VALUES:
                actual[at][name] = draw(VALUES[name])
            elif name != "drop":
                to = draw(st.integers(0, len(actual)))
                actual.insert(to, dict(row if name == "move" else actual[at]))
    return expected, actual


def table(rows):
    return pa.Table.from_pylist(rows, SCHEMA)


def bits(value):
    """A form of a value that is equal for two values if and only if all their bits are."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, list):
        return tuple(map(bits, value))
    return tuple(bits(value[name]) for name in sorted(value)) if isinstance(value, dict) else value


def key(row):
    return tuple(row[name] for name in KEY)


@given(pairs())
@settings(deadline=None)
def test_comparing_tables_equals_comparing_their_rows(drawn):
    expected, actual = drawn
    first = {}
    for row in actual:
        first.setdefault(key(row), row)
    wrong = {
        key(row): {name for name in VALUES if bits(row[name]) != bits(first[key(row)][name])}
        for row in expected
        if key(row) in first
    }
    wanted = {key(row) for row in expected}
    counts = {
        "missing": len(wanted - first.keys()),
        "extra": len(actual) - len(wanted & first.keys()),
        "out_of_order": sum(key(after) < key(row) for row, after in pairwise(actual)),
        "different": sum(map(bool, wrong.values())),
    }
    outcome = in_memory("outputs", table(expected), table(actual))
    assert outcome.counts == {kind: count for kind, count in counts.items() if count}
    for difference in outcome.differences:
        if difference.kind == "different":
            assert set(difference.columns) == wrong[key(difference.row)]
        if difference.kind == "missing":
            assert key(difference.row) in wanted - first.keys()
    assert [outcome.differences == [], not outcome.counts] == [bits(expected) == bits(actual)] * 2


@given(pairs(), st.integers(1, 4))
@settings(deadline=None)
def test_comparing_slices_equals_comparing_the_whole(drawn, size):
    expected, actual = map(table, drawn)

    def slices(rows):
        return (rows.slice(at, size) for at in range(0, rows.num_rows, size))

    outcome = row_by_row("outputs", slices(expected), slices(actual))
    if expected.select(KEY).equals(actual.select(KEY)):
        assert outcome.counts == in_memory("outputs", expected, actual).counts
        assert repr(outcome.differences) == repr(in_memory("outputs", expected, actual).differences)
    else:
        assert outcome is None


@given(pairs(), st.integers(1, 4))
@settings(deadline=None)
def test_comparing_ranges_equals_comparing_the_whole(drawn, size):
    expected, actual = map(table, drawn)
    whole = in_memory("outputs", expected, actual)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(comparison, "_SLICE", size):
        sides = []
        for number, rows in enumerate((expected, actual)):
            pq.write_table(rows, Path(folder, f"{number}.parquet"), row_group_size=2)
            sides.append(Parts([Path(folder, f"{number}.parquet")]))
        outcome = comparison.matched("outputs", *sides, expected.column_names)
    assert outcome.counts == whole.counts
    assert sorted(map(repr, outcome.differences)) == sorted(map(repr, whole.differences))


@given(pairs(), st.sampled_from([1, 1 << 17]))
@settings(deadline=None)
def test_multisets_are_compared_as_bags_of_rows(drawn, size):
    names = ["n", "ok", "x", "word", "few"]
    bags = [Counter(bits([row[name] for name in names]) for row in rows) for rows in drawn]
    sides = [[table(rows).select(names)] for rows in drawn]
    with mock.patch.object(comparison, "_SLICE", size):
        outcome = multisets("outputs", *sides, sum(map(len, drawn)))
    sizes = {"missing": (bags[0] - bags[1]).total(), "extra": (bags[1] - bags[0]).total()}
    assert outcome.counts == {kind: size for kind, size in sizes.items() if size}
    shown = Counter()
    for difference in outcome.differences:
        times = (difference.expected or difference.actual)["times"]
        shown[difference.kind, bits([difference.row[name] for name in names])] += times
    bag = {("missing", row): n for row, n in (bags[0] - bags[1]).items()}
    assert shown == bag | {("extra", row): n for row, n in (bags[1] - bags[0]).items()}


@pytest.mark.parametrize(
    ("left", "right", "wrong"),
    [
        (pa.array([1, None, None]), pa.array([1, None, 2]), [False, False, True]),
        (pa.array([[1.0], None, [0.0]]), pa.array([[1.0], None, [-0.0]]), [False, False, True]),
        (pa.array([[1.0], [2.0]]), pa.array([[1.0, 2.0], []]), [True, True]),
        (pa.array([{"k": 1}, {"k": None}]), pa.array([{"k": 1}, {"k": 2}]), [False, True]),
        (pa.array(["a", "b"]), pa.array(["a", "c"]), [False, True]),
        (pa.array([], pa.list_(pa.int64())), pa.array([], pa.list_(pa.int64())), []),
        (pa.array([[1.0], [2.0, 3.0], [4.0]]).slice(1), pa.array([[2.0, 3.0], [5.0]]), [False, True]),
    ],
)
def test_unequal_values_are_marked_by_row(left, right, wrong):
    assert unequal(left, right).tolist() == wrong


def test_a_table_of_one_row_needs_no_key():
    left, right = (pa.table({"n": values}) for values in ([1], [2, 3]))
    outcome = in_memory("state total", left, right)
    assert [line for difference in outcome.differences for line in difference.lines()] == [
        "state total: position 1: unexpected row: n 3",
        "state total: position 0: n: expected 1, got 2",
    ]


def test_columns_match_by_name_and_type():
    # Parquet chooses the names of list items.
    lists = (pa.list_(pa.field(name, pa.int64())) for name in ("item", "element"))
    expected, actual = (pa.schema([("a", kind), ("b", pa.int64())]) for kind in lists)
    assert columns("outputs", expected, actual) == []
    actual = pa.schema([("c", pa.int64()), ("b", pa.int32())])
    assert [column.words() for column in columns("outputs", expected, actual)] == [
        ["column a is missing"],
        ["column b is int32, expected int64"],
        ["column c is unexpected"],
    ]


def test_only_the_first_differences_are_kept_and_all_are_counted():
    rows = [{"seq": n, "sub": 0, "a": n, "b": n} for n in range(15)]
    expected, actual = (pa.Table.from_pylist(rows).set_column(2, "a", [[n] * 15]) for n in (1, 2))
    actual = actual.set_column(3, "b", [[99] * 15])
    outcome = in_memory("outputs", expected, actual)
    assert (outcome.counts, len(outcome.differences)) == ({"different": 15}, 10)
    assert outcome.differences[9].lines() == [
        "outputs: seq 9, sub 0: a: expected 1, got 2",
        "outputs: seq 9, sub 0: b: expected 9, got 99",
    ]


def test_values_are_printed_like_text():
    value = {"word": b"it's", "odd": b"\xff", "list": [b"a", 0.5, math.nan], "far": -math.inf, "no": True}
    assert plain(value) == {"word": "it's", "odd": "0xff", "list": ["a", 0.5, "NaN"], "far": "-Infinity", "no": True}
    assert shown(value) == "word \"it's\", odd 0xff, list ['a', 0.5, NaN], far -Infinity, no True"
    odd = np.array([0xFFF8 << 48 | 5], np.uint64).view(np.float64)[0].item()
    assert plain(odd) == shown(odd) == "NaN (bits 0xfff8000000000005)"


def test_differences_outside_rows_are_printed():
    assert Difference("passes", "digest", {"pass": "peak 1"}, "1:0", "2:0", ("digest",)).lines() == [
        "passes: pass peak 1: digest: expected 1:0, got 2:0"
    ]
    assert Difference("state a", "table", {}, "a table", "no file").lines() == [
        "state a: expected a table, got no file"
    ]
