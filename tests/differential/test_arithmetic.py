"""The same arithmetic three times, bit for bit and error for error: interpreted, compiled loop, compiled kernels."""

import importlib.util
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_core.data.comparison import unequal
from streaming_core.errors import RunFailed
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from tests.differential.expressions import expressions, write
from tests.differential.kernel import Kernel
from tests.support.draws import some

EXPRESSIONS = expressions()
SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("seq", "op", "a", "b")]
    + [(name, pa.float64()) for name in ("x", "y")]
    + [(name, pa.bool_()) for name in ("p", "q")]
)
EDGES = [0, 1, -1, 2, 3, 7, -7, 62, 63, 64, 65, 2**31, -(2**31), 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]
EDGES += [3_037_000_500, 216_923_853_431]  # their squares wrap around to negative numbers
REALS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.1, 2.0**53, 2.0**63, -(2.0**63), 2.0**62, 1e308, -1e308, 5e-324, 1e-310]
REALS += [float("inf"), float("-inf"), 9007199254740993.0, 3.0, -7.0]
# Quiet NaNs of either sign, with a payload, signalling ones.
NANS = [0x7FF8 << 48, 0xFFF8 << 48, 0x7FF8 << 48 | 0xBEEF, 0x7FF0 << 48 | 1, 0xFFF4 << 48]
REALS += np.array(NANS, np.uint64).view(np.float64).tolist()


# Every seventh expression takes a quarter of a minute to compile, and all take two.
@pytest.fixture(scope="module", params=some([14, 1]), ids=["some", "all"])
def ops(request):
    if request.param == 1:
        return range(len(EXPRESSIONS))
    errors = [n for n, (_, text) in enumerate(EXPRESSIONS) if text in ("a // b", "a << b", "int(x)")]
    return sorted({*errors, *range(0, len(EXPRESSIONS), request.param)})


@pytest.fixture(scope="module")
def machines(ops, tmp_path_factory):
    folder = tmp_path_factory.mktemp("expressions")
    app = application(write(folder, ops))
    return [Interpreter(app, {}), Loop(app, {}), Kernel(app, {})]


def application(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


def outcome(machine, events):
    """Output rows and errors, event by event: an error ends a run, so the rest is run again without that event."""
    rows, errors = [], []
    while events.num_rows:
        try:
            rows.append(machine.process(events))
            break
        except RunFailed as error:
            seq, name = re.search(r"event (\d+): (\w+)", str(error)).groups()
            errors.append((int(seq), name))
            position = events["seq"].to_pylist().index(int(seq))
            if position:
                rows.append(machine.process(events.slice(0, position)))
            events = events.slice(position + 1)
    return (pa.concat_tables(rows) if rows else None), errors


def agree(machines, events):
    """Assert that all machines agree; the message shows expression and values."""
    rows = {row["seq"]: row for row in events.to_pylist()}
    output = outcome(machines[0], events)[1]
    for machine in machines[1:]:
        name = type(machine).__name__
        expected, errors = outcome(machines[0], events)
        actual, others = outcome(machine, events)
        for seq, error in set(errors) ^ set(others):
            what = EXPRESSIONS[rows[seq]["op"]]
            raise AssertionError(f"{name}: {what} of {rows[seq]}: {error} on one side only")
        if expected is None:
            assert actual is None
            continue
        assert actual["seq"].equals(expected["seq"])
        for column in ("i", "f", "t"):
            for at in unequal(expected[column], actual[column]).nonzero()[0].tolist():
                row = rows[expected["seq"][at].as_py()]
                values = expected[column][at].as_py(), actual[column][at].as_py()
                raise AssertionError(
                    f"{name}: {EXPRESSIONS[row['op']]} of {row}: interpreted {values[0]}, got {values[1]}"
                )
    return output


integers = st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1)
reals = st.sampled_from(REALS) | st.floats(allow_nan=False)
values = (integers, integers, reals, reals, st.booleans(), st.booleans())


@pytest.mark.parametrize("examples", [25, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_random_expression_has_the_same_value_on_every_machine(examples, ops, machines):
    event = st.tuples(st.sampled_from(ops), *values)

    @settings(max_examples=examples, deadline=None, derandomize=True)
    @given(st.lists(event, min_size=1, max_size=60))
    def means_the_same(events):
        agree(machines, table([(i, *drawn) for i, drawn in enumerate(events)]))

    means_the_same()


def test_every_expression_agrees_on_edge_values(ops, machines):
    events = []
    for op in ops:
        for i, a in enumerate(EDGES):
            b = EDGES[(i * 7 + op) % len(EDGES)]
            x, y = REALS[(i + op) % len(REALS)], REALS[(i * 5 + op * 3) % len(REALS)]
            events.append((len(events), op, a, b, x, y, i % 2 == 0, (i + op) % 3 == 0))
    errors = agree(machines, table(events))
    assert {name for _, name in errors} == {"ZeroDivisionError", "ValueError", "OverflowError"}


def table(events):
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*events, strict=True), SCHEMA, strict=True)], schema=SCHEMA
    )
