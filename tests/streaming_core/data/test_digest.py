"""The vectorised digest against a definition that takes one row, word and byte at a time."""

import math
import struct

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.data.digest import add, digest_table, format_digest
from streaming_core.errors import BadInput

MASK = (1 << 64) - 1


def words_of(value, kind):
    if pa.types.is_fixed_size_list(kind):
        return [w for item in value for w in words_of(item, kind.value_type)]
    if pa.types.is_list(kind):
        return [len(value)] + [w for item in value for w in words_of(item, kind.value_type)]
    if pa.types.is_struct(kind):
        return [w for field in kind for w in words_of(value[field.name], field.type)]
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        padded = value + b"\0" * (-len(value) % 8)
        return [len(value)] + [int.from_bytes(padded[i : i + 8], "little") for i in range(0, len(padded), 8)]
    if isinstance(value, float):
        return [struct.unpack("<Q", struct.pack("<d", value))[0]]
    return [int(value) & MASK]


def row_by_row(table, leading):
    order = [*leading, *(c for c in table.column_names if c not in leading)]
    total = 0
    for row in table.to_pylist():
        h = 0x243F6A8885A308D3
        for name in order:
            for w in words_of(row[name], table.schema.field(name).type):
                h = (h ^ w) * 0x9E3779B97F4A7C15 & MASK
                h ^= h >> 32
        h = h * 0xD6E8FEB86659FD93 & MASK
        total += h ^ (h >> 29)
    return table.num_rows, total & MASK


PAIRS = pa.list_(pa.struct([("key", pa.int32()), ("value", pa.int64())]))


def sample(rows=300):
    rng = np.random.default_rng(5)
    texts = [rng.bytes(int(n)) for n in rng.integers(0, 30, rows)]
    lists = [list(map(int, rng.integers(-9, 9, int(n)))) for n in rng.integers(0, 5, rows)]
    pairs = [[{"key": k, "value": -k * 7} for k in items] for items in lists]
    return pa.table(
        {
            "flag": pa.array(rng.integers(0, 2, rows).astype(bool)),
            "small": pa.array(rng.integers(-128, 128, rows), pa.int8()),
            "byte": pa.array(rng.integers(0, 256, rows), pa.uint8()),
            "wide": pa.array(rng.integers(-(2**63), 2**63 - 1, rows)),
            "natural": pa.array(rng.integers(0, 2**32, rows), pa.uint32()),
            "real": pa.array([-0.0, 0.0, math.inf, *map(float, rng.normal(size=rows - 3))]),
            "text": pa.array(texts, pa.binary()),
            "word": pa.array([t.hex() for t in texts], pa.string()),
            "array": pa.array([list(map(int, rng.integers(0, 99, 3))) for _ in range(rows)], pa.list_(pa.uint32(), 3)),
            "ring": pa.array(lists, pa.list_(pa.int16())),
            "map": pa.array(pairs, PAIRS),
            "seq": pa.array(np.arange(rows)),
        }
    )


def test_a_digest_equals_its_definition_by_row():
    table = sample()
    assert digest_table(table, ("seq",)) == row_by_row(table, ("seq",))
    for name in table.column_names:
        assert digest_table(table.select([name])) == row_by_row(table.select([name]), ()), name


def test_slices_and_chunks_hash_their_own_rows():
    table = sample()
    for start, length in ((0, 0), (7, 1), (13, 200)):
        part = table.slice(start, length)
        assert digest_table(part, ("seq",)) == row_by_row(part, ("seq",))
    chunked = pa.concat_tables([table.slice(0, 11), table.slice(11, 50), table.slice(61)])
    assert digest_table(chunked, ("seq",)) == digest_table(table, ("seq",))


def test_parts_add_up_in_any_order():
    table = sample()
    parts = [digest_table(table.slice(at, 100), ("seq",)) for at in (200, 0, 100)]
    total = (0, 0)
    for part in parts:
        total = add(total, part)
    assert total == digest_table(table, ("seq",))


def test_every_value_changes_the_digest():
    table = sample(40)
    whole = digest_table(table, ("seq",))
    changed = {
        "flag": True, "small": 99, "byte": 99, "wide": 99, "natural": 99, "real": 9.5, "text": b"x\0", "word": "x",
        "array": [1, 2, 99], "ring": [0], "map": [{"key": 1, "value": 99}], "seq": 99,
    }  # fmt: skip
    for index, field in enumerate(table.schema):
        values = table.column(field.name).to_pylist()
        position = next(i for i, v in enumerate(values) if v != changed[field.name])
        values[position] = changed[field.name]
        other = table.set_column(index, field, pa.array(values, field.type))
        assert digest_table(other, ("seq",)) != whole, field.name


def test_trailing_zero_bytes_and_empty_texts_change_the_digest():
    digests = {digest_table(pa.table({"t": pa.array([t], pa.binary())})) for t in (b"", b"\0", b"\0\0", b"\0" * 8)}
    assert len(digests) == 4


def test_an_empty_table_has_a_digest():
    assert digest_table(sample().slice(0, 0), ("seq",)) == (0, 0)
    table = sample()
    assert digest_table(pa.concat_tables([table.schema.empty_table(), table]), ("seq",)) == digest_table(
        table, ("seq",)
    )
    assert format_digest(0, 0) == "0:0000000000000000"
    assert format_digest(12, 0xABC) == "12:0000000000000abc"


def test_a_table_without_a_digest_is_refused_in_one_line():
    with pytest.raises(BadInput, match="unknown column 'seq'"):
        digest_table(pa.table({"x": [1]}), ("seq",))
    with pytest.raises(BadInput, match="column x has type "):
        digest_table(pa.table({"x": pa.array([1], pa.timestamp("s"))}))


def test_null_differs_from_every_value_and_from_its_absence():
    texts = [digest_table(pa.table({"t": pa.array([t], pa.binary())})) for t in (None, b"", b"\0")]
    numbers = [digest_table(pa.table({"x": pa.array([x], pa.int64())})) for x in (None, 0, 1)]
    lists = [digest_table(pa.table({"x": pa.array([x], pa.list_(pa.int64()))})) for x in ([None], [0], [], [0, 0])]
    pairs = [digest_table(pa.table({"a": pa.array([a], pa.int64()), "b": [0]})) for a in (None, 0)]
    for digests in (texts, numbers, lists, pairs):
        assert len({*digests}) == len(digests)
