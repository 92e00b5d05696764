"""What the operator language refuses, where an application is loaded: one table, which has every refusal there is."""

import ast
import json
import re
import traceback
from pathlib import Path

import pytest
from numba.core.errors import TypingError
from numba.core.ir import Loc

from streaming_core.apps import registry
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.kernels.program import compile_app
from streaming_core.language import source, typed
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop

# An application of one operator. A case gives its body, and functions beside it; the reason; and which function is at
# fault, if another one is. `# here` marks the line that is named, else it is the body's first, or that of the `def`.
HEAD = '''"""An application that breaks the language."""
import numpy as np

from streaming_core.api import (
    App, Array, Counter, Map, Param, Queue, Ring, Set, TopK, boolean, f64, i64, record, text, u8,
)

app = App("NAME", params={"k": Param(2), "word": Param("x"), "large": Param(1 << 70), "p": Param(True)})
other = App("other", params={"missing": Param(1)})


@record
class Event:
    ts: i64
    a: i64
    b: f64
    p: boolean
    line: text
    items: Array[u8, 2]


@record
class Item:
    k: u8
    y: f64


@record
class Held:
    waiting: Queue[Item]


@record
class State:
    n: u8
    x: f64
    few: Array[u8, 3]
    last: Ring[i64, 3]
    seen: Set[i64]
    values: Map[i64, f64]
    counts: Counter[i64]
    best: TopK[2]


@record
class Huge:
    made: Array[i64, 8193]


@record
class Output:
    n: i64
    line: text
    items: Array[u8, 2]


rows = app.table("rows", State, 4)
foreign = other.table("foreign", State, 4)


@app.constant
def offsets(params):
    return np.zeros(3)


@other.constant
def strange(params):
    return np.zeros(3)


def change(row, event):
    row.n = 1


def holds(row, event):
    return row.n > 0


def nothing(event):
    pass


def same(x):
    return x


'''
PROCESS = "app.source(Event).process(operate, State, Output).sink()\n"
PLAN = """

@operated.post
def told(event, txn, out):
    pass
"""
POST = """

@app.transaction(input=Event, output=Output)
def planned(event, txn):
    txn.read(txn.row(rows, event.a))


planned.post(operate)
"""
# A function that its case does not have is one that does nothing.
WINDOW = """

def idle(row, window, state, out):
    pass


@record
class Key:
    n: u8
    word: text


app.source(Event).window(
    FUNCTIONS, advance=1, size="k", state=State, output=Output
).sink()
"""
TAIL = """

@app.generates
def events(params, seed, start, stop):
    return {}
"""
KINDS = {
    "process": ("row, state, out", PROCESS),
    "queue": ("row, state, out", PROCESS.replace("State", "Held")),
    "plan": ("event, txn", "\n\noperated = app.transaction(input=Event, output=Output)(operate)\n" + PLAN),
    "post": ("event, txn, out", POST),
    "update": ("row, window, state, out", WINDOW.replace("FUNCTIONS", "every=1, update=operate")),
    "result": ("window, state, out", WINDOW.replace("FUNCTIONS", 'key="a", update=idle, result=operate')),
    "keys": ("row, keys", WINDOW.replace("FUNCTIONS", "keys=operate, key=Key, update=idle")),
}
NO_PART = "is not part of the operator language"
ONE_NAME = "goes by one name, and is not kept, chosen or handed back"

REFUSED = {
    "process": [
        # Statements.
        ("with row:\n    pass", f"`with row:` {NO_PART}"),
        ("x: i64", f"`x: i64` {NO_PART}"),
        ("x = y = 1", f"`x = y = 1` {NO_PART}"),
        ("global x\nx = 1", f"`global x` {NO_PART}"),
        ("x = 1\n'said'  # here", f"`'said'` {NO_PART}"),
        ("row.a", f"`row.a` {NO_PART}"),
        ("while row.a:\n    pass\nelse:\n    pass", f"`while row.a:` {NO_PART}"),
        ("for i in range(3):\n    pass\nelse:\n    pass", f"`for i in range(3):` {NO_PART}"),
        ("for i in row.items:\n    pass", f"`for i in row.items:` {NO_PART}"),
        ("for i, j in range(3):\n    pass", f"`for i, j in range(3):` {NO_PART}"),
        ("for i in same(3):\n    pass", f"`for i in same(3):` {NO_PART}"),
        ("for i in range(0.5):\n    pass", "a float is not an integer"),
        ("for i in range():\n    pass", "range takes one to three integers"),
        ("range = 3\nfor i in range(3):  # here\n    pass", "`range` is not a function"),
        # What is stored.
        ("row.a = 1", "Event.a: this row is read-only here"),
        ("state.few = row.items", "State.few: only scalar fields can be assigned to"),
        ("state.missing = 1", "State has no field 'missing'"),
        ("state.n = 0.5", "State.n: a float cannot be stored there"),
        ("state.x = row.line", "State.x: a text cannot be stored there"),
        ("state.last[0] = 1", "only items of writable arrays can be assigned to"),
        ("row.items[0] = 1", "only items of writable arrays can be assigned to"),
        ("state.few[0:1] = 1", "`state.few[0:1]` cannot be assigned to"),
        ("x, y = 1, 2", f"`(1, 2)` {NO_PART}"),
        ("x, y = 1", "`(x, y)` cannot be assigned to"),
        ("x = nothing(row)", "there is no value to assign"),
        ("x = 1\nx = row.line  # here", "an integer and a text cannot be one value"),
        ("put = out", f"an output {ONE_NAME}"),
        # Variables.
        ("if row.a:\n    x = 1\nstate.n = x  # here", "variable 'x' may have no value yet"),
        ("for i in range(row.a):\n    pass\nstate.n = i  # here", "variable 'i' may have no value yet"),
        ("while row.a > state.n:\n    x = 1\nstate.n = x  # here", "variable 'x' may have no value yet"),
        (
            "while True:\n    if row.a:\n        break\n    x = 1\n    if row.p:\n        break\nstate.n = x  # here",
            "variable 'x' may have no value yet",
        ),
        ("if app.p:\n    pass\nelse:\n    x = 1\nstate.n = x  # here", "variable 'x' may have no value yet"),
        ("x += 1", "variable 'x' may have no value yet"),
        ("some(1)\n\n\ndef some(_floordiv):  # here\n    pass",
         "the name _floordiv is reserved: it begins with an underscore", "some"),
        # Names.
        ("x = nowhere", "name 'nowhere' is not known here"),
        ("x = holds", "a value of type function cannot be used in an operator"),
        ("x = None", "a value of type NoneType cannot be used in an operator"),
        ("x = 'said'", "a value of type str cannot be used in an operator"),
        ("x = app", "a value of type App cannot be used in an operator"),
        ("x = app.size", "a value of type App cannot be used in an operator"),
        ("x = 1 << 3 + 9223372036854775808", "9223372036854775808 does not fit 64 bits"),
        ("x = app.params.large", f"{1 << 70} does not fit 64 bits"),
        ("x = app.params.word", "parameter word is text and cannot be used in an operator"),
        ("x = app.params.missing", "no parameter 'missing'; known: k, word, large, p"),
        ("x = other.missing", "no parameter 'missing'; known: k, word, large, p"),
        ("x = strange[0]", "strange is not of application NAME"),
        # Expressions.
        ("x = [1, 2]", f"`[1, 2]` {NO_PART}"),
        ("x = row.a ** 2", f"`row.a ** 2` {NO_PART}"),
        ("x = row.a @ 2", f"`row.a @ 2` {NO_PART}"),
        ("x = row.a is row.b", f"`row.a is row.b` {NO_PART}"),
        ("x = 1 in state.seen in state.seen", f"`1 in state.seen in state.seen` {NO_PART}"),
        ("x = 1 < 2 in state.seen", f"`1 < 2 in state.seen` {NO_PART}"),
        ("x = 0 < same(row.a) < 3", "nothing is called in the middle of a < b < c that may change something"),
        ("x = 0 < state.seen.add(1) < 3", "nothing is called in the middle of a < b < c that may change something"),
        ("x = row.a in row.items", "`in` asks a set or a map"),
        ("x = 0.5 in state.seen", "a float is not an integer"),
        ("x = row.b & 1", "bits of a float cannot be combined"),
        ("x = row.b << 1", "floats cannot be shifted"),
        ("x = ~row.p", "~ of a boolean is -1 or -2 in one world and `not` in another: say `not`"),
        ("x = ~row.b", "a float is not an integer"),
        ("x = row.line + 1", "a text is not a number"),
        ("x = row.line < row.line", "a text is not a number"),
        ("x = -row.line", "a text is not a number"),
        ("x = row.a if row.p else row.line", "an integer and a text cannot be one value"),
        ("(out if row.p else out).drop()", f"an output {ONE_NAME}"),
        ("x = row.line[::2]", f"`row.line[::2]` {NO_PART}"),
        ("x = row.items[0:1]", "only text can be sliced"),
        ("x = row.line[0:0.5]", "a float is not an integer"),
        ("x = state.seen[0]", "a set has no items"),
        ("x = state.few[0.5]", "a float is not an integer"),
        ("x = row.missing", "Event has no field 'missing'"),
        ("x = row.a.b", "an integer has no field 'b'"),
        ("x = (row if row.p else row).line", "Event.line: text is read from a row that has a name"),
        # Calls.
        ("x = same(x=1)", "calls take positional arguments"),
        ("x = same(*row)", "calls take positional arguments"),
        ("x = row.line.find(*row)", "calls take positional arguments"),
        ("x = row()", "`row` is not a function"),
        ("x = same(1)(2)", "`same(1)` is not a function"),
        ("x = np(1)", "np cannot be called in an operator"),
        ("x = same(nothing(row))", "same is given nothing, or the transaction twice"),
        ("x = same(1, 2)", "takes 1 arguments, is given 2", "same"),
        ("x = range(3)", "range is not known here, or its arguments are not"),
        ("x = len(row.a)", "len is not known here, or its arguments are not"),
        ("print(row.a)", "print is not known here, or its arguments are not"),
        ("state.seen.put(1, 2)", "a set has no put with 2 arguments"),
        ("state.seen.add(1, 2)", "a set has no add with 2 arguments"),
        ("state.counts.get(1, 2)", "a counter has no get with 2 arguments"),
        ("state.seen.add(0.5)", "a float is not an integer"),
        ("state.last.append(0.5)", "State.last: a float cannot be stored there"),
        ("state.values.put(1, row.line)", "State.values: a text cannot be stored there"),
        ("x = row.line.find(1)", "a text has no find with 1 arguments"),
        ("x = out.emit(n=1, line=row.line, items=row.items)", "calls take positional arguments"),
        # What is emitted.
        ("out.emit(1, 2, 3)", "emit takes every field by name"),
        ("out.emit(n=1)", "emit of Output needs exactly: n, line, items"),
        ("out.emit(n=1, line=row.line, items=row.items, m=1)", "emit of Output needs exactly: n, line, items"),
        ("out.emit(n=row.b, line=row.line, items=row.items)", "Output.n: a float cannot be stored there"),
        ("out.emit(n=1, line=1, items=row.items)", "Output.line: an integer cannot be put there"),
        ("out.emit(n=1, line=row.line, items=1)", "Output.items: an integer cannot be put there"),
        ("out.emit(n=1, line=row.line, items=state.few)", "Output.items: an array of u8 cannot be put there"),
        # Functions.
        ("return out", f"an output {ONE_NAME}"),
        ("def inner():\n    pass", f"`def inner():` {NO_PART}"),
        ("x = some(1)\n\n\ndef some(a):  # here\n    if a:\n        return 1",
         "returns a value on some ways through it and nothing on others", "some"),
        ("x = some(1)\n\n\ndef some(a):\n    if a:\n        return 1\n    return  # here",
         "an integer and nothing cannot be one value", "some"),
        ("x = some(1)\n\n\ndef some(a, b=1):  # here\n    return a", "an operator takes plain positional arguments",
         "some"),
        ("x = again(1)\n\n\ndef again(a):  # here\n    return again(a)", "recursion is not supported", "again"),
        ("x = unnamed(1)\n\n\nunnamed = lambda a: a  # here", "must be a plain def, not a lambda", "<lambda>"),
        ("x = made(1)\n\n\nexec(compile('def made(a): return a', '<made>', 'exec'))",
         "its source cannot be read: could not get source code", "made"),
    ],
    "queue": [
        ("x = state.waiting[0]", "a row of a queue is read by its fields: queue[i].field"),
        ("state.waiting[0]", f"`state.waiting[0]` {NO_PART}"),
        ("x = state.waiting[0].missing", "Item has no field 'missing'"),
        ("x = state.waiting[0.5].k", "a float is not an integer"),
        ("x = state.waiting[0:1]", "only text can be sliced"),
        ("x = state.waiting.n", "a queue has no field 'n'"),
        ("state.waiting[0].k = 1", "Item.k: this row is read-only here"),
        ("state.waiting[0] = 1", "only items of writable arrays can be assigned to"),
        ("state.waiting.append(1, 0.5)", "append takes every field by name"),
        ("state.waiting.append(k=1)", "append of Item needs exactly: k, y"),
        ("state.waiting.append(k=1, y=0.5, n=1)", "append of Item needs exactly: k, y"),
        ("state.waiting.append(k=0.5, y=0.5)", "Item.k: a float cannot be stored there"),
        ("state.waiting.append(k=1, y=row.line)", "Item.y: a text cannot be stored there"),
        ("x = state.waiting.append(k=1, y=0.5)", "calls take positional arguments"),
        ("x = state.waiting.append(1)", "a queue has no append with 1 arguments"),
        ("x = state.waiting.popleft()", "there is no value to assign"),
        ("state.waiting.popleft(1)", "a queue has no popleft with 1 arguments"),
        ("x = 1 in state.waiting", "`in` asks a set or a map"),
        ("x = same(state.waiting[0])", "a row of a queue is read by its fields: queue[i].field"),
    ],
    "plan": [
        ("txn.row(rows, event.a).n", f"`txn.row(rows, event.a).n` {NO_PART}"),
        ("x = txn.row(rows, event.a).n", "fields of table rows are seen by conditions and modifications only"),
        ("x = txn.row(3, event.a)", "the first argument must be a table of the application"),
        ("x = txn.row(foreign, event.a)", "foreign is not of application NAME"),
        ("x = txn.row(rows, 0.5)", "a float is not an integer"),
        ("x = txn.result(rows, 0)", "txn.row belongs to the transaction, txn.result to what comes after it"),
        ("txn.commit()", "txn.commit is not known, or its arguments are not"),
        ("txn.row(rows, event.a)", "txn.row is not known, or its arguments are not"),
        ("txn.modify(row=1)", "calls take positional arguments"),
        ("txn.modify(event.a, change)", "txn.modify takes rows named by txn.row"),
        ("txn.modify(txn.row(rows, 0), 3)", "modify takes a plain function of the application"),
        ("txn.modify(txn.row(rows, 0), change, 0.5)", "a float is not an integer"),
        ("txn.modify(txn.row(rows, 0), change, 1)", "takes 2 arguments, is given 3", "change"),
        ("txn.require(event.a > 0)", "require takes a plain function of the application"),
        ("txn.require(operated)", "require takes a plain function of the application"),
        ("txn.require(holds, 3, txn.row(rows, 0))", "txn.require takes rows named by txn.row"),
        ("txn.require(nothing, 3)", "txn.require takes rows before the integer"),
        ("txn.require(holds, txn.row(rows, 0), 0.5)", "txn.require takes rows named by txn.row"),
        ("txn.require(nothing)", "condition nothing returns nothing, not a truth value"),
        (f"row = txn.row(rows, 0)\ntxn.require(holds{', row' * 101})  # here", "a condition reads at most 100 rows"),
        ("txn.require(writes, txn.row(rows, 0))\n\n\ndef writes(row, event):\n    row.n = 1  # here\n    return True",
         "State.n: this row is read-only here", "writes"),
        ("txn.require(adds, txn.row(rows, 0))\n\n\ndef adds(row, event):\n    return row.seen.add(1)  # here",
         "State.seen: this row is read-only here", "adds"),
        ("row = txn.row(rows, 0)\ntxn.require(both, row, row)\n\n\ndef both(row, other, event):\n"
         "    return 1 in row.seen  # here",
         "State.seen: a condition over several rows sees no set, map, counter or top-k", "both"),
        ("part(event, txn)\n\n\ndef part(event, txn):\n    txn.drop()  # here",
         "drop belongs to the transaction's own functions, not to what they call", "part"),
        ("part(txn)\n\n\ndef part(txn):\n    txn.modify(txn.row(rows, 0), change)  # here",
         "a function that calls txn.modify takes the event too", "part"),
        # The order of what a plan does is read from its source, by the name of its transaction.
        ("also = txn\nalso.modify(also.row(rows, 0), change)", f"a transaction {ONE_NAME}"),
        ("part(event, txn, txn)\n\n\ndef part(event, txn, also):\n    also.drop()",
         "part is given nothing, or the transaction twice"),
        ("part(event, txn).drop()\n\n\ndef part(event, txn):\n    return txn  # here",
         f"a transaction {ONE_NAME}", "part"),
    ],
    "post": [
        ("x = txn.row(rows, 0)", "txn.row belongs to the transaction, txn.result to what comes after it"),
        ("x = txn.result(3, 0)", "the first argument must be a table of the application"),
        ("x = len(txn.result(rows, 0).seen)", "State.seen: a read returns scalars, never a container"),
        ("x = txn.result(rows, 0).last[0]", "State.last: a read returns scalars, never a container"),
        ("x = txn.rejected", "the outcome of a transaction has no field 'rejected'"),
        ("also = txn", f"the outcome of a transaction {ONE_NAME}"),
        ("part(out)\n\n\ndef part(out):\n    out.drop()  # here",
         "drop belongs to the transaction's own functions, not to what they call", "part"),
    ],
    "update": [
        ("x = window.middle", "a window has start, end and key, no 'middle'"),
        ("also = window", f"a window {ONE_NAME}"),
        ("window.end = 1", "a window has no field 'end'"),
        ("x = window.key.word", "Every has no field 'word'"),
        ("row.ts = 1", "Event.ts: this row is read-only here"),
    ],
    "result": [
        ("window.key.a = 1", "Key.a: this row is read-only here"),
    ],
    "keys": [
        ("keys.add(n=1)", "keys.add of Key needs exactly: n, word"),
        ("keys.add(1, row.line)", "keys.add takes every field by name"),
        ("keys.add(n=0.5, word=row.line)", "Key.n: a float cannot be stored there"),
        ("keys.add(n=1, word=row.a)", "Key.word: an integer cannot be put there"),
        ("also = keys", f"keys {ONE_NAME}"),
        ("x = keys.length", "keys has no field 'length'"),
    ],
}  # fmt: skip
# What is refused is no expression or statement: the application's text, changed.
DECLARED = [
    ("out):\n    pass\n\n\napp", "out):\n    return 1\n\n\napp",
     r"operator operate \(NAME.py:\d+\): an operator returns nothing"),
    ("row, state, out", "row, state", r"operator operate \(NAME.py:\d+\): takes 2 arguments, is given 3"),
    ("    n: u8\n", "    n: text\n", r"NAME.py:\d+: app NAME: record State\(.*\): n is a Text, no table has any"),
    ("    a: i64\n", "    a: Set[i64]\n", r"NAME.py:\d+: app NAME: record Event\(.*\): a is a Set, no event has any"),
    (
        "    seen: Set[i64]\n", "    seen: Queue[Item]\n",
        r"NAME.py:\d+: app NAME: record State\(.*\): seen is a Queue, no table has any",
    ),
    ("    y: f64\n", "    y: text\n",
     r"NAME.py:\d+: record Held.waiting: items of Queue must be records of scalars, and Item.y is a Text"),
    ("Queue[Item]", "Queue[i64]", r"NAME.py:\d+: record Held.waiting: items of Queue must be records"),
    (
        ".process(operate, State, Output)", ".flat_map(operate, Output, scratch=Held)",
        r"NAME.py:\d+: app NAME: record Held\(waiting\): waiting is a Queue, no scratch has any",
    ),
    (
        'rows = app.table("rows", State, 4)', 'for i in range(257):\n    rows = app.table(f"rows{i}", State, 4)\n',
        "app NAME: 257 tables are too many, 256 the most",
    ),
    ('"rows", State, 4', '"rows", State, 0', r"app NAME: table rows: size 0 must lie in 1\.\.4294967295"),
    (
        ".process(operate, State, Output)", ".flat_map(operate, Output, scratch=Huge)",
        "record Huge: 65544 bytes are too many to work in, 65536 the most",
    ),
]  # fmt: skip
CASES = [(kind, *case, *["operate"] * (3 - len(case))) for kind, cases in REFUSED.items() for case in cases]


def written(package, name, kind, code, function="operate"):
    """The application of a case; its line that is named."""
    arguments, declared = KINDS[kind]
    body, *beside = code.split("\n\n\n")
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    parts = [HEAD.replace("NAME", name) + f"def operate({arguments}):\n{lines}", *beside, declared + TAIL]
    text = "\n\n".join(parts)
    (package / f"{name}.py").write_text(text)
    for number, line in enumerate(text.split("\n"), 1):
        if line.endswith("# here") or ("# here" not in text and line.startswith(f"def {function}(")):
            return number + (function == "operate" and "# here" not in text)
    return None


def refusal(name):
    with pytest.raises(BadInput) as refused:
        registry.load(name)
    assert "\n" not in str(refused.value)
    return refused.value


@pytest.mark.parametrize(("number", "kind", "code", "reason", "function"), [(i, *case) for i, case in enumerate(CASES)])
def test_what_is_no_part_of_the_language_is_refused_with_its_line(number, kind, code, reason, function, package):
    name = f"case{number}"
    line = written(package, name, kind, code, function)
    where = f"{function} ({name}.py:{line})" if line else "made (<made>:1)"
    assert str(refusal(name)) == f"application {name}: operator {where}: {reason.replace('NAME', name)}"


@pytest.mark.parametrize(("number", "old", "new", "line"), [(i, *case) for i, case in enumerate(DECLARED)])
def test_what_cannot_be_declared_is_refused(number, old, new, line, package):
    name = f"declared{number}"
    written(package, name, "process", "pass")
    file = package / f"{name}.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    assert re.fullmatch(f"application {name}: {line.replace('NAME', name)}", str(refusal(name)))


def test_every_refusal_is_in_the_table(package):
    """Each place of the reader that refuses was come by: what is not in the table, nobody has seen at work."""
    raised = set()
    for number, case in enumerate(CASES + DECLARED):
        name = f"case{number}"
        if number < len(CASES):
            written(package, name, *case[:2])
        else:
            written(package, name, "process", "pass")
            (package / f"{name}.py").write_text((package / f"{name}.py").read_text().replace(*case[:2]))
        error = refusal(name)
        while error.__context__ is not None:
            error = error.__context__
            trace = traceback.extract_tb(error.__traceback__)[-1]
            raised.add((trace.filename, trace.lineno))
    for path in [Path(source.__file__), *sorted(Path(typed.__file__).parent.glob("*.py"))]:
        sites = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise)]
        for site in sites:
            assert any((str(path), line) in raised for line in range(site.lineno, (site.end_lineno or 0) + 1)), (
                f"{path.name}:{site.lineno} refuses what no case has"
            )


def test_an_application_that_breaks_the_language_is_refused_by_every_command_alike(package, command, tmp_path):
    written(package, "whole", "process", "pass")
    line = written(package, "broken", "process", "state.n = 0.5")
    said = f"streaming-core: application broken: operator operate (broken.py:{line}): "
    said += "State.n: a float cannot be stored there\n"
    out, source = tmp_path / "out", tmp_path / "source"
    for arguments in (
        ["describe", "broken"],
        ["generate", "broken", "--events", 1, "--out", out],
        ["run", "broken", "--input", source, "--out", out],
        ["oracle", "broken", "--input", source, "--out", out],
    ):
        assert command(*arguments) == (2, "", said)
        assert not out.exists()
    code, listed, complained = command("apps", "--json")
    assert (code, complained) == (2, said)
    assert [row["app"] for row in json.loads(listed)] == ["whole"]


def test_parameters_may_decide_whether_an_operator_has_a_type(package, command, tmp_path):
    """An application may keep to the language with some parameters and break it with others."""
    line = written(package, "decided", "process", "if app.p:\n    x = 1\nstate.n = x  # here")
    registry.load("decided")
    assert command("generate", "decided", "--events", 0, "--set", "p=false", "--out", tmp_path / "w") == (
        2, "", f"streaming-core: operator operate (decided.py:{line}): variable 'x' may have no value yet\n",
    )  # fmt: skip
    assert not (tmp_path / "w").exists()
    app = registry.load("decided")
    for make in (compile_app, Interpreter, Loop):
        with pytest.raises(BadInput, match=r"operator operate \(decided.py:\d+\): variable 'x' may have no value yet"):
            make(app, app.bind({"p": False}))


@pytest.mark.parametrize("make", [compile_app, Loop])
def test_what_numba_does_not_compile_is_no_fault_of_the_application(make, package, monkeypatch):
    line = written(package, "accepted", "process", "state.n = 1")
    app = registry.load("accepted")

    def fail(*_):
        raise TypingError("two lines\nof words", Loc(app.operators[1].functions["process"].__code__.co_filename, line))

    monkeypatch.setattr("streaming_core.kernels.shapes.kernel", fail)
    monkeypatch.setattr("streaming_core.oracle.loop.loop.programs", fail)
    who = "app accepted" if make is Loop else rf"operator operate \(accepted.py:{line}\)"
    with pytest.raises(CommandFailed, match=f"^{who}: accepted by the language but not by the compiler: two lines$"):
        make(app, app.bind({"k": 3}))
