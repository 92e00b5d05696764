"""Columns as the runtime's rows: values, digests, and refusals."""

import json
import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_core import _runtime
from streaming_core.data.digest import digest_table
from streaming_core.data.rows import TEXT_PADDING, encode
from streaming_core.language.record import VALID, Array, boolean, f64, i8, i16, i32, i64, record, text, u8, u16, u32

INTEGERS = {"i8": i8, "i16": i16, "i32": i32, "i64": i64, "u8": u8, "u16": u16, "u32": u32}
STRANGE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]


@record
class Event:
    flag: boolean
    name: text
    i8: i8
    i16: i16
    i32: i32
    i64: i64
    u8: u8
    u16: u16
    u32: u32
    real: f64
    other: text
    reals: Array[f64, 2]
    flags: Array[boolean, 3]
    maybe: i32 | None
    label: text | None


EVENT = Event.resolve({})
REALS = st.floats() | st.just(STRANGE_NAN)
TEXTS = st.binary(max_size=20)
VALUES = st.fixed_dictionaries(
    {name: st.integers(*kind.bounds) for name, kind in INTEGERS.items()}
    | {"flag": st.booleans(), "name": TEXTS, "other": TEXTS, "real": REALS}
    | {"maybe": st.none() | st.integers(*i32.bounds), "label": st.none() | TEXTS}
    | {"reals": st.tuples(REALS, REALS), "flags": st.tuples(*[st.booleans()] * 3)}
)


@settings(deadline=None)  # the first one compiles the digest's loops
@given(st.lists(VALUES, max_size=40), st.booleans(), st.data())
def test_rows_hold_the_values_of_columns_and_have_their_digest(events, with_sub, data):
    leading = ("seq", "sub") if with_sub else ("seq",)
    schema = EVENT.arrow(leading)
    lists = {name: [[*event[name]] for event in events] for name in ("reals", "flags")}
    columns = {name: lists.get(name, [event.get(name) for event in events]) for name in schema.names}
    columns["seq"] = [5 + i // 2 for i in range(len(events))]
    columns["sub"] = [i % 2 for i in range(len(events))]
    table = pa.table({name: columns[name] for name in schema.names}, schema)
    cut = data.draw(st.integers(0, len(events)))
    table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])  # of two chunks
    rows, beside, value = encode(table, EVENT)
    assert value == digest_table(table, leading)[1]
    assert rows["seq"].tolist() == columns["seq"]
    assert rows["flag"].tolist() == columns["flag"]
    for name in (*INTEGERS, "flags"):
        assert rows[name].tolist() == columns[name]
    for name in ("name", "other"):
        texts = [beside[at : at + n].tobytes() for at, n in rows[name].tolist()]
        assert texts == columns[name]
    for name, nothing in (("maybe", 0), ("label", b"")):
        wanted = [event[name] for event in events]
        assert rows[VALID + name].tolist() == [value is not None for value in wanted]
        values = (
            [beside[at : at + n].tobytes() for at, n in rows[name].tolist()] if name == "label" else rows[name].tolist()
        )
        assert values == [nothing if value is None else value for value in wanted]
    for name in ("real", "reals"):
        expected = np.array(columns[name], "<f8")
        expected[np.isnan(expected)] = math.nan
        assert rows[name].tobytes() == expected.tobytes()
    assert not beside[-TEXT_PADDING:].any()


def test_many_rows_have_the_digest_of_their_columns():
    numbers = np.arange(5000)
    values = {"seq": numbers, "flag": numbers % 3 == 0, "real": numbers / 7}
    values |= {name: (numbers % 100).astype(kind.dtype) for name, kind in INTEGERS.items()}
    values |= {"maybe": [None if n % 7 == 3 else n for n in range(5000)]}
    values |= {"label": [None if n % 5 == 3 else b"y" * (n % 20) for n in range(5000)]}
    values |= {"name": [b"x" * (n % 30) for n in range(5000)], "other": [str(n).encode() for n in range(5000)]}
    values |= {
        "reals": np.arange(10_000.0).reshape(-1, 2).tolist(),
        "flags": [[True, False, n % 2 == 0] for n in numbers],
    }
    schema = EVENT.arrow(("seq",))
    table = pa.table({name: values[name] for name in schema.names}, schema)
    for part in (table, table.slice(7, 1030)):
        assert encode(part, EVENT)[2] == digest_table(part, ("seq",))[1]


BASE = {
    "rows": np.zeros(48, np.uint8),
    "shape": (2, 24),
    "text": np.zeros(TEXT_PADDING + 3, np.uint8),
    "numbers": (np.zeros(16, np.uint8), None),
    "columns": json.dumps([{"kind": "text", "offset": 8, "count": 1}, {"kind": "i64", "offset": 16, "count": 1}]),
    "values": [np.array([0, 1, 3], "<i4").view(np.uint8), np.zeros(16, np.uint8)],
    "bases": [0, 0],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": np.zeros(47, np.uint8)}, "2 rows of 24 bytes take 48 bytes, got 47"),
        ({"rows": bytes(48)}, "rows must be writable"),
        ({"numbers": (np.zeros(8, np.uint8), None)}, "seq and sub must have eight bytes for each row"),
        (
            {"numbers": (np.zeros(16, np.uint8), np.zeros(24, np.uint8))},
            "seq and sub must have eight bytes for each row",
        ),
        ({"columns": "[]"}, "each column values and a base"),
        ({"columns": "{"}, "columns: "),
        ({"values": [np.zeros(12, np.uint8), np.zeros(8, np.uint8)]}, "each column must lie in a row"),
        ({"columns": BASE["columns"].replace("16", "17")}, "each column must lie in a row"),
        ({"columns": BASE["columns"].replace("8,", "4,")}, "each column must lie in a row"),
        ({"bases": [1, 0]}, "a row refers to text outside its block"),
        ({"text": np.zeros(3, np.uint8)}, "text must end with 64 bytes of padding"),
    ],
)
def test_invalid_columns_are_refused(change, message):
    assert _runtime.fill_rows(**BASE)
    with pytest.raises(ValueError, match=message):
        _runtime.fill_rows(**BASE | change)


def test_a_program_and_a_digest_share_one_layout():
    assert [column["kind"] for column in EVENT.layout][:3] == ["boolean", "text", "i8"]
    assert EVENT.layout[-6:-4] == [
        {"kind": "f64", "offset": EVENT.event[0]["reals"].offset, "count": 2},
        {"kind": "boolean", "offset": EVENT.event[0]["flags"].offset, "count": 3},
    ]
