"""Operands are evaluated in Python's order: interpreted, in the compiled loop and in compiled kernels."""

import pyarrow as pa
import pytest

from streaming_core.apps import registry
from streaming_core.errors import RunFailed
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from tests.differential.kernel import Kernel
from tests.support import by_hand

HEAD = """
from streaming_core.api import App, Array, Counter, Map, Queue, Ring, Set, f64, i64, record, text

app = App("evaluation_order")


@record
class Event:
    case: i64
    line: text


@record
class Pair:
    a: i64
    b: f64


@record
class State:
    n: i64
    array: Array[i64, 8]
    ring: Ring[i64, 8]
    members: Set[i64]
    values: Map[i64, i64]
    counts: Counter[i64]
    pairs: Queue[Pair]


@record
class Output:
    a: i64
    b: f64
    c: i64


def note(state, x):
    state.ring.append(x)
    return x


def step(state, x):
    state.n += x
    state.ring.append(x)
    return state.n


def put(state, key, value):
    state.values.put(key, value)
    return value


def say(out, x):
    out.emit(a=x, b=0, c=-1)
    return x


def noted(state):
    state.ring.append(9)
    return state


def items(state):
    state.ring.append(8)
    return state.array
"""
# Statements whose operands act; the names of helpers are those of HEAD.
CASES = [
    # assignments: the value, then the owner, then the index
    "state.array[note(state, 1)] = note(state, 2)",
    "state.array[state.n] = step(state, 1)",
    "state.array[state.counts.add(5, 1)] = len(state.counts)",
    "noted(state).n = note(state, 1)",
    "noted(state).array[note(state, 1)] = note(state, 2)",
    "items(state)[note(state, 1)] = note(state, 2)",
    # augmented assignments: the index once, then the old value, then the operand
    "state.array[state.counts.add(5, 1)] += 7",
    "state.array[note(state, 1)] += note(state, 2)",
    "state.array[state.n] += step(state, 1)",
    "state.array[state.n + 1] -= step(state, 1)",
    "state.n += step(state, 2)",
    "state.n *= step(state, 2) + state.n",
    "x = state.n + 1\nx += step(state, x) + step(state, x)\nnote(state, x)",
    # keyword arguments, in written order
    "out.emit(c=note(state, 3), a=note(state, 1), b=note(state, 2))",
    "out.emit(b=state.n, c=step(state, 3), a=step(state, 1))",
    "out.emit(c=say(out, 3), b=say(out, 2), a=0)",
    "state.pairs.append(b=note(state, 2), a=note(state, 1))",
    # arguments
    "note(state, note(state, 1) + step(state, 2))",
    "say(out, say(out, 1) - say(out, 2))",
    "state.values.put(note(state, 1), note(state, 2))",
    "note(state, state.values.get(note(state, 1), note(state, 2)))",
    "note(state, state.values.get(5, put(state, 5, 6)))",
    "note(state, state.counts.add(step(state, 1), step(state, 2)))",
    "note(state, max(step(state, 1), state.n, step(state, -2)))",
    "note(state, min(state.n, step(state, 1), state.n))",
    "note(state, int(state.members.add(note(state, state.n))))",
    # operators, comparisons, conditions
    "note(state, state.n - step(state, 1) * 2 - state.n)",
    "note(state, step(state, 1) // step(state, 1) % step(state, 1))",
    "note(state, int(note(state, 1) < state.n + 2 < step(state, 3)))",
    "note(state, int(step(state, 1) < state.n + 1 < 5 < step(state, 1)))",
    "note(state, int(state.n == step(state, 1)))",
    "note(state, note(state, 1) and note(state, 0) and note(state, 2))",
    "note(state, note(state, 0) or note(state, 3) or note(state, 2))",
    "note(state, int(note(state, 0) == 0 and not note(state, 4)))",
    "note(state, note(state, 1) if note(state, 0) else note(state, 2))",
    # items, texts
    "note(state, noted(state).array[note(state, 1)])",
    "state.ring.append(state.ring[note(state, 0)])",
    "note(state, len(noted(state).ring))",
    "note(state, len(row.line[note(state, 1) : note(state, 3)]))",
    "note(state, row.line[note(state, 1) : note(state, 3)][note(state, 1)])",
    "note(state, row.line.find(note(state, 98), note(state, 0)))",
    # statements
    "for i in range(note(state, 0), step(state, 4), note(state, 2)):\n    note(state, i + step(state, 1))",
    "while step(state, 1) < 3:\n    note(state, 7)",
    "if say(out, 1) > say(out, 2):\n    say(out, 3)\nelif say(out, 4):\n    say(out, 5)",
    "x = step(state, 1) + step(state, 1)\ny = x + step(state, x)\nout.emit(a=x, b=y, c=0)",
    "return note(state, say(out, 1))",
]


# Statements that fail, with the reason.
FAILURES = {
    "note(state, int(row.line))": "ValueError: int() of a text that is no decimal integer",
    "note(state, int(float(row.line)))": "ValueError: float() of a text that is no decimal number",
    "note(state, int('12345678901234567890'))": "OverflowError: int() of a text outside 64 bits",
    "note(state, row.line.find(state.n - 1, 0))": "ValueError: text: a byte lies in 0..255",
    "note(state, 1 // state.n)": "ZeroDivisionError: division by zero",
    "note(state, 1 % state.n)": "ZeroDivisionError: division by zero",
    "note(state, int(1 / state.n))": "ZeroDivisionError: division by zero",
    "note(state, int(1.0 // state.n))": "ZeroDivisionError: division by zero",
    "note(state, int(1.0 % state.n))": "ZeroDivisionError: division by zero",
}
TAIL = """    out.emit(a=state.n, b=len(state.values), c=len(state.pairs))
    for i in range(len(state.array)):
        out.emit(a=state.array[i], b=0.0, c=i)
    for i in range(len(state.ring)):
        out.emit(a=state.ring[i], b=1.0, c=i)
    state.ring.clear()


app.source(Event).process(process, State, Output).sink()


@app.generates
def generate(params, seed, start, stop):
    return {}
"""


def source(statements):
    """An application that runs the statements of a case, and emits the state that they leave."""
    functions, calls = "", "\n\ndef process(row, state, out):\n"
    for i, case in enumerate(statements):
        body = case.replace("\n", "\n    ")
        functions += f"\n\ndef case_{i}(row, state, out):\n    state.n = 0\n    {body}\n"
        calls += f"    if row.case == {i}:\n        case_{i}(row, state, out)\n"
    return HEAD + functions + calls + TAIL


def rows(start, stop):
    columns = {"seq": range(start, stop), "case": range(start, stop), "line": [b"abcde"] * (stop - start)}
    return pa.table({name: list(values) for name, values in columns.items()})


# Compiling every statement takes a minute: without `slow`, only those that once had another order, and one failure of
# each kind.
@pytest.mark.parametrize(
    ("cases", "failures"),
    [(CASES[:17], list(FAILURES)[::3]), pytest.param(CASES, list(FAILURES), marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_operands_act_in_the_order_of_python_and_failures_have_one_text(package, cases, failures):
    (package / "evaluation_order.py").write_text(source([*cases, *failures]))
    app = registry.load("evaluation_order")
    expected = by_hand.run(app, {}, rows(0, len(cases))).outputs
    for machine in (Interpreter(app, {}), Loop(app, {}), Kernel(app, {})):
        name, outputs = type(machine).__name__, machine.process(rows(0, len(cases))).to_pylist()
        for i, case in enumerate(cases):
            actual, python = ([row for row in side if row["seq"] == i] for side in (outputs, expected))
            assert actual == python, (name, case)
        for i, case in enumerate(failures, len(cases)):
            with pytest.raises(RunFailed) as failure:
                machine.process(rows(i, i + 1))
            assert f"event {i}: {FAILURES[case]}" in str(failure.value), (name, case)
