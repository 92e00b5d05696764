"""Columns as numpy arrays and back, against pyarrow's own conversions."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.data.arrow import from_bytes, to_arrow, to_numpy

VALUES = {
    "i64": np.array([-1, 0, 2**63 - 1, 5, 6, 7, 8, 9, 10], np.int64),
    "u8": np.arange(9, dtype=np.uint8),
    "f64": np.array([0.0, -0.0, np.inf, 1.5, np.nan, 2, 3, 4, 5]),
    "boolean": np.array([1, 0, 0, 1, 1, 1, 0, 1, 1], bool),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_columns_survive_a_round_trip(values):
    column = to_arrow(values)
    assert column.to_pylist()[:4] == values.tolist()[:4]
    for part in (slice(0, 9), slice(3, 7), slice(9, 9), slice(0, 0)):
        array = to_numpy(column[part])
        assert array.dtype == values.dtype
        assert array.tobytes() == values[part].tobytes()
        assert to_arrow(values[part]).equals(column[part]) or np.isnan(values[part]).any()


def test_columns_can_have_any_number_of_chunks():
    chunks = pa.chunked_array([pa.array([1, 2]), pa.array([], pa.int64()), pa.array([3])])
    assert to_numpy(chunks).tolist() == [1, 2, 3]
    assert to_numpy(pa.chunked_array([], pa.int64())).dtype == np.int64


def test_a_column_of_a_wider_array_is_copied():
    rows = np.arange(12).reshape(4, 3)
    assert to_arrow(rows[:, 1]).to_pylist() == [1, 4, 7, 10]


def test_nulls_are_refused():
    with pytest.raises(ValueError, match="1 nulls"):
        to_numpy(pa.array([1, None]))


def test_texts_are_built_from_bytes():
    assert from_bytes([b"a", b"", b"\xffxyz"]).to_pylist() == [b"a", b"", b"\xffxyz"]
    assert len(from_bytes([])) == 0
