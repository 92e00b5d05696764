"""engines/client: its digest equals Lockstep's, and it keeps the contract."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_core.data.digest import digest_table, format_digest
from streaming_core.engines import environment

ROWS = st.lists(
    st.tuples(
        st.binary(max_size=40),
        st.floats(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.tuples(*[st.floats()] * 2),
    ),
    max_size=20,
)


@pytest.fixture(scope="module")
def client():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(environment.CLIENT))
        import lockstep_engine

        yield lockstep_engine


@settings(deadline=None)
@given(rows=ROWS, cut=st.integers(0, 20))
def test_the_digest_equals_lockstep_s(client, rows, cut):
    texts, doubles, flags, numbers, pairs = zip(*rows, strict=True) if rows else [()] * 5
    table = pa.table(
        {
            "word": pa.array(texts, pa.binary()),
            "x": pa.array(np.array(doubles, np.float64)),
            "seq": pa.array(range(len(rows)), pa.int64()),
            "flag": pa.array(flags, pa.bool_()),
            "sub": pa.array(numbers, pa.int64()),
            "pair": pa.FixedSizeListArray.from_arrays(pa.array(np.array(pairs, np.float64).reshape(-1)), 2),
        }
    ).slice(cut)
    assert client.digest(table, "total") == format_digest(*digest_table(table, ("seq", "sub")))
    assert client.digest(table, "none") == format_digest(*digest_table(table))
