"""Text expressions: interpreter, loop, kernels and engine compute what plain Python computes of bytes."""

import importlib.util
import random
import re

import pyarrow as pa
import pytest

from streaming_core.data.digest import digest_table, format_digest
from streaming_core.errors import RunFailed
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.way import RunSpec
from tests.differential.case import Events
from tests.differential.kernel import Kernel
from tests.differential.test_arithmetic import outcome
from tests.support.draws import seeds, some

HEAD = """
from streaming_core.api import App, boolean, f64, i64, record, text

app = App("texts")
WORD, BYTES = "an", b"\\xff\\x00"


@record
class Event:
    op: i64
    a: text
    b: text
    n: i64
    m: i64


@record
class Output:
    w: text
    i: i64
    f: f64
    t: boolean


def twice(t):
    return t + b"/" + t


def repeated(t, n):
    whole = b""
    for i in range(n & 7):
        whole += t
    return whole


def parts(t):
    whole = b"<"
    for part in t.split(b" "):
        if part == b"stop":
            break
        if part == b"":
            continue
        whole = whole + part + b","
    return whole


def words(t):
    whole = b""
    for word in t.split():
        for letter in word.split(b"a"):
            whole += letter + b"|"
    return whole


def evaluate(row, out):
    op = row.op
    a = row.a
    b = row.b
    n = row.n
    m = row.m
"""
EXPRESSIONS = [
    *(("w", e) for e in (
        "a", "a + b", "a + WORD", "a + b'-' + b + BYTES", "b'x' + a.lower()", "a.upper()", "a.lower().strip()",
        "(a + b' ').strip()", "a.strip()", "str(n)", "a + b':' + str(n)", "a[n:m]", "a[n:]", "a[:m]", "a[-3:-1]",
        "(a + b)[n:m]", "a if n < m else b'none'", "a[1:] + a[:1]", "twice(a)", "twice(twice(b))", "repeated(a, n)",
        "parts(a)", "parts(a + b)", "words(b)", "words(a.upper() + b' ' + b)", "str(n) + str(m)", "str(n)[-2:]",
        "(a + b) + (b + a)", "b'' + a", "str(-n)",
    )),
    *(("i", e) for e in (
        "len(a + b)", "a[n]", "a[-1]", "a.find(b)", "a.find(b, n)", "a.find(WORD)", "a.find(n & 255, m)", "a.find(97)",
        "(a + b).find(b, 1)", "a.find(b'', n)", "int(a)", "int(a.strip())", "int(str(n) + b'0')", "int(str(n))",
        "a.lower().find(b.lower())", "(a + b)[n]", "int(b)", "a.find(n, 0)",
    )),
    *(("f", e) for e in ("float(a)", "float(a.strip())", "float(str(n) + b'.5')", "float(b) + int(str(m))")),
    *(("t", e) for e in (
        "a == b", "a != b", "a < b", "a <= b", "a > b", "a >= b", "a == WORD", "b'a' <= a < b'b'",
        "a in (b, WORD, b'')",
        "a not in (b'one', b'an')", "b in a", "b not in a", "WORD in a", "n & 255 in a", "97 in a", "a.startswith(b)",
        "a.endswith(b)", "a.endswith(WORD)", "(a + b).startswith(b)", "a.lower() == b.lower()", "a + b == b + a",
        "BYTES in a + BYTES", "n in (1, 2, m)", "n in a",
    )),
]  # fmt: skip
BRANCH = "    if op == {}:\n        out.emit(w={w}, i={i}, f={f}, t={t})\n"
TAIL = """
app.source(Event).flat_map(evaluate, Output).sink()


@app.generates
def generate(params, seed, start, stop):
    return {}
"""
NOTHING = {"w": "b''", "i": "0", "f": "0.0", "t": "False"}
TEXTS = [
    b"", b"a", b"an", b"An", b"banana an", b" two  words ", b"stop", b"go stop now", b"\t\x0b\x0cx\r\n",
    b"\xc3\x84rger", b"\xff\x00", b"12", b"-7", b"+0", b" 12", b"1_0", b"9223372036854775807", b"9223372036854775808",
    b"-9223372036854775808", b"-9223372036854775809", b"000000000000000000000000012", b"99999999999999999999x",
    b"1.5", b".5", b"5.", b".", b"1e5", b"1e", b"-1.25E-3", b"nan", b"inf", b"1e999", b"0.1",
    b"123456789012345678901234567890", b"a" * 17, b"a" * 16 + b"b", b"b" * 200,
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 3, -3, 7, 15, 16, 17, 32, 97, 255, 256, 300, 2**62, -(2**62), 2**63 - 1, -(2**63)]
SCHEMA = pa.schema([("seq", pa.int64()), ("op", pa.int64()), ("a", pa.binary()), ("b", pa.binary()),
                    ("n", pa.int64()), ("m", pa.int64())])  # fmt: skip


def _int(value):
    if not re.fullmatch(rb"[+-]?\d+", value):
        raise ValueError(value)
    if not -(2**63) <= int(value) < 2**63:
        raise OverflowError(value)
    return int(value)


def _float(value):
    if not re.fullmatch(rb"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", value):
        raise ValueError(value)
    return float(value)


def _str(value):
    return b"%d" % ((value + 2**63) % 2**64 - 2**63)


def specification(kind, expression, row):
    """The output of a row, in plain Python; the name of the error if there is one."""
    names = {"int": _int, "float": _float, "str": _str, "WORD": b"an", "BYTES": b"\xff\0", **row}
    names["twice"] = lambda t: t + b"/" + t
    names["repeated"] = lambda t, n: t * (n & 7)
    head = lambda t: t[: t.index(b"stop")] if b"stop" in t else t  # noqa: E731
    names["parts"] = lambda t: b"<" + b"".join(p + b"," for p in head(t.split(b" ")) if p)
    names["words"] = lambda t: b"".join(c + b"|" for w in t.split() for c in w.split(b"a"))
    try:
        value = eval(expression, names)
    except (IndexError, ValueError, OverflowError) as error:
        return type(error).__name__
    return {"w": b"", "i": 0, "f": 0.0, "t": False, kind: value}


def rows_of(r, ops, count):
    """Rows of each operation in turn, with each number in turn."""
    for seq in range(count):
        op, n = ops[seq % len(ops)], NUMBERS[seq // len(ops) % len(NUMBERS)]
        b = r.choice((r.choice(TEXTS), bytes(r.choice(b"an A 9") for _ in range(r.randrange(4)))))
        yield {"seq": seq, "op": op, "a": r.choice(TEXTS), "b": b, "n": n, "m": r.choice(NUMBERS)}


def table(rows):
    return pa.Table.from_pylist(rows, schema=SCHEMA)


# All expressions take half a minute to compile.
@pytest.fixture(scope="module", params=some([16, 1]), ids=["some", "all"])
def ops(request):
    always = [op for op, (_, e) in enumerate(EXPRESSIONS) if e in ("a[n]", "int(a)", "float(a)", "a.find(b, n)")]
    return sorted({*always, *range(0, len(EXPRESSIONS), request.param)})


@pytest.fixture(scope="module")
def app(ops, tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "text_expressions.py"
    branches = [BRANCH.format(op, **NOTHING | {kind: e}) for op, (kind, e) in enumerate(EXPRESSIONS) if op in ops]
    path.write_text("".join([HEAD, *branches, "\n", TAIL]))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


@pytest.fixture(scope="module")
def machines(app):
    return {"interpreter": Interpreter(app, {}), "loop": Loop(app, {}), "kernel": Kernel(app, {})}


@pytest.mark.parametrize("seed", seeds(1, of=20))
def test_expression_has_the_value_that_python_computes_of_bytes(ops, machines, seed):
    rows = list(rows_of(random.Random(seed), ops, 20 * len(ops)))
    expected = [specification(*EXPRESSIONS[row["op"]], row) for row in rows]
    for name, machine in machines.items():
        outputs, errors = outcome(machine, table(rows))
        results = {row["seq"]: row for row in outputs.to_pylist()} | dict(errors)
        for row, value in zip(rows, expected, strict=True):
            result = results[row["seq"]]
            if isinstance(value, dict):
                value = {"seq": row["seq"], "sub": 0, **value}
            assert result == value, (name, EXPRESSIONS[row["op"]], row)
    assert {error for error in expected if isinstance(error, str)} == {"IndexError", "ValueError", "OverflowError"}


@pytest.mark.parametrize("executor", ["morsel", "pinned", "pooled"])
@pytest.mark.parametrize("threads", [1, 3])
def test_engine_equals_the_interpreter_in_every_cut(ops, app, machines, executor, threads):
    rows = list(rows_of(random.Random(5), ops, 2000))
    rows = [row for row in rows if isinstance(specification(*EXPRESSIONS[row["op"]], row), dict)]
    rows = [row | {"seq": seq} for seq, row in enumerate(rows)]
    events, program = table(rows), machines["kernel"].program
    oracle = Interpreter(app, {})
    expected = format_digest(*digest_table(oracle.process(events), ("seq", "sub")))
    for batch, block in ((1, 64), (256, 1000)):
        spec = RunSpec.parse({"app": "texts", "executor": executor, "threads": threads, "batch": batch})
        sample, _, _ = one_pass.run(spec, program, Blocks(Events([events]), program, block))
        assert sample.digest == expected


@pytest.mark.parametrize(("a", "expression", "message"), [
    (b"1_0", "int(a)", "ValueError: int() of a text that is no decimal integer"),
    (b"9" * 19, "int(a)", "OverflowError: int() of a text outside 64 bits"),
    (b"nan", "float(a)", "ValueError: float() of a text that is no decimal number"),
])  # fmt: skip
def test_wrong_number_is_the_same_error_in_all_ways(machines, a, expression, message):
    op = [e for _, e in EXPRESSIONS].index(expression)
    for machine in machines.values():
        with pytest.raises(RunFailed, match=re.escape(message)):
            machine.process(table([{"seq": 0, "op": op, "a": a, "b": b"", "n": 0, "m": 0}]))
