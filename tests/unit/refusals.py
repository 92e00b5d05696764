"""What breaks the operator language, and what is said of it: an application around each mistake."""

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
        ("with row:\n    pass", f"`with row:` {NO_PART}: with: an operator opens nothing"),
        ("x: i64", f"`x: i64` {NO_PART}: a variable without a value: begin with one"),
        ("x = y = 1", f"`x = y = 1` {NO_PART}: several targets: one assignment at a time"),
        ("global x\nx = 1",
         f"`global x` {NO_PART}: global variables: what lasts from event to event is a field of the state"),
        ("x = 1\n'said'  # here",
         f"`'said'` {NO_PART}: a value that nobody uses: return it, assign it, or leave it out"),
        ("row.a", f"`row.a` {NO_PART}: a value that nobody uses: return it, assign it, or leave it out"),
        ("while row.a:\n    pass\nelse:\n    pass", f"`while row.a:` {NO_PART}: while has no else"),
        ("for i in range(3):\n    pass\nelse:\n    pass",
         f"`for i in range(3):` {NO_PART}: for goes over range(...), without else: for i in range(len(...))"),
        ("for i in row.items:\n    pass",
         f"`for i in row.items:` {NO_PART}: for goes over range(...), without else: for i in range(len(...))"),
        ("for i, j in range(3):\n    pass",
         f"`for i, j in range(3):` {NO_PART}: for goes over range(...), without else: for i in range(len(...))"),
        ("for i in same(3):\n    pass",
         f"`for i in same(3):` {NO_PART}: for goes over range(...), without else: for i in range(len(...))"),
        ("for i in range(0.5):\n    pass", "a float is not an integer"),
        ("for i in range():\n    pass", "range takes one to three integers"),
        ("range = 3\nfor i in range(3):  # here\n    pass", "`range` is not a function"),
        # What is stored.
        ("row.a = 1", "Event.a: this row is read-only here"),
        ("state.few = row.items", "State.few: only scalar fields can be assigned to"),
        ("state.missing = 1", "State has no field 'missing'; it has n, x, few, last, seen, values, counts, best"),
        ("state.n = 0.5", "State.n: a float cannot be stored there"),
        ("state.x = row.line", "State.x: a text cannot be stored there"),
        ("state.last[0] = 1", "a ring has no items to assign to: entries are written by append(x)"),
        ("row.items[0] = 1", "only items of writable arrays can be assigned to"),
        ("state.few[0:1] = 1", "`state.few[0:1]` cannot be assigned to"),
        ("x, y = 1, 2", f"`(1, 2)` {NO_PART}: tuples: give each value a name of its own"),
        ("x, y = 1", "`(x, y)` cannot be assigned to"),
        ("x = nothing(row)", "there is no value to assign: what is called returns none"),
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
        ("x = nowhere",
         "name 'nowhere' is not known here: an operator knows its arguments and variables, and numbers, "
         "constants, tables and functions of its file"),
        ("x = holds", "a value of type function cannot be used in an operator: call it"),
        ("x = None",
         "a value of type NoneType cannot be used in an operator: a field or variable always has a value: "
         "choose one, 0 or -1, that means none"),
        ("x = 'said'",
         "a value of type str cannot be used in an operator: text comes from events: compare its bytes, "
         "line[0] == 97, or give it a number where events are made"),
        ("x = app", "a value of type App cannot be used in an operator: a parameter is read as app.params.<name>"),
        ("x = app.size", "a value of type App cannot be used in an operator: a parameter is read as app.params.<name>"),
        ("x = 1 << 3 + 9223372036854775808", "9223372036854775808 does not fit 64 bits"),
        ("x = app.params.large", f"{1 << 70} does not fit 64 bits"),
        ("x = app.params.word", "parameter word is text and cannot be used in an operator"),
        ("x = app.params.missing", "no parameter 'missing'; known: k, word, large, p"),
        ("x = other.missing", "no parameter 'missing'; known: k, word, large, p"),
        ("x = strange[0]", "strange is not of application NAME"),
        # Expressions.
        ("x = [1, 2]", f"`[1, 2]` {NO_PART}: lists: an Array or Ring of a record keeps several values"),
        ("x = row.a ** 2", f"`row.a ** 2` {NO_PART}: powers: multiply"),
        ("x = row.a @ 2", f"`row.a @ 2` {NO_PART}: @: multiply in a loop"),
        ("x = row.a is row.b",
         f"`row.a is row.b` {NO_PART}: is: write ==; there is no None, a field always has a value"),
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
        ("x = row.line + 1",
         "a text is not a number: it has len(text), text[i], text[a:b], find(byte, start), == and !="),
        ("x = row.line < row.line",
         "a text is not a number: it has len(text), text[i], text[a:b], find(byte, start), == and !="),
        ("x = -row.line",
         "a text is not a number: it has len(text), text[i], text[a:b], find(byte, start), == and !="),
        ("x = row.a if row.p else row.line", "an integer and a text cannot be one value"),
        ("(out if row.p else out).drop()", f"an output {ONE_NAME}"),
        ("x = row.line[::2]", f"`row.line[::2]` {NO_PART}: steps in a slice: text[a:b] is all there is"),
        ("x = row.items[0:1]", "only text can be sliced"),
        ("x = row.line[0:0.5]", "a float is not an integer"),
        ("state.last += 1", "a ring is not a number"),
        ("x = row.a[0]", "an integer has no items"),
        ("x = state.seen[0]", "a set has no items: it is read by x in s, or at(i)"),
        ("x = state.few[0.5]", "a float is not an integer"),
        ("x = row.missing", "Event has no field 'missing'; it has ts, a, b, p, line, items"),
        ("x = row.a.b", "an integer has no field 'b'"),
        ("x = (row if row.p else row).line", "Event.line: text is read from a row that has a name"),
        # Calls.
        ("x = same(x=1)", "calls take positional arguments: no names, no stars"),
        ("x = same(*row)", "calls take positional arguments: no names, no stars"),
        ("x = row.line.find(*row)", "calls take positional arguments: no names, no stars"),
        ("x = row()", "`row` is not a function"),
        ("x = same(1)(2)", "`same(1)` is not a function"),
        ("x = np(1)",
         "np cannot be called in an operator: an operator calls functions of its own file, and len, min, max, "
         "abs, int, float, bool"),
        ("x = same(nothing(row))", "same is given nothing, or the transaction twice"),
        ("x = same(1, 2)", "takes 1 arguments, is given 2", "same"),
        ("x = range(3)", "range is not known here, or its arguments are not: it stands in for loops only"),
        ("x = len(row.a)",
         "len is not known here, or its arguments are not: it takes a text, an array, a container or a "
         "constant"),
        ("print(row.a)",
         "print() cannot be called in an operator: out.emit puts rows out; `streaming-core record` shows what "
         "an operator takes"),
        ("state.seen.put(1, 2)", "a set has no put with 2 arguments: it has add(integer), at(integer), clear()"),
        ("state.seen.add(1, 2)", "a set has no add with 2 arguments: it has add(integer), at(integer), clear()"),
        ("state.counts.get(1, 2)",
         "a counter has no get with 2 arguments: it has add(integer, integer), get(integer), key_at(integer), "
         "value_at(integer), clear()"),
        ("state.seen.add(0.5)", "a float is not an integer"),
        ("state.last.append(0.5)", "State.last: a float cannot be stored there"),
        ("state.values.put(1, row.line)", "State.values: a text cannot be stored there"),
        ("x = row.line.find(1)",
         "a text has no find with 1 argument: it has len(text), text[i], text[a:b], find(byte, start), == and "
         "!="),
        ("x = out.emit(n=1, line=row.line, items=row.items)",
         "out.emit(...) is no value: out.emit(field=value, ...) puts a row out, out.drop() none, each on a "
         "line of its own"),
        # What is emitted.
        ("out.emit(1, 2, 3)", "emit takes every field by name: emit(n=..., line=..., items=...)"),
        ("out.emit(n=1)", "emit of Output needs exactly: n, line, items; line is missing; items is missing"),
        ("out.emit(n=1, line=row.line, items=row.items, m=1)",
         "emit of Output needs exactly: n, line, items; it has no m"),
        ("out.emit(n=row.b, line=row.line, items=row.items)", "Output.n: a float cannot be stored there"),
        ("out.emit(n=1, line=1, items=row.items)", "Output.line: an integer cannot be put there"),
        ("out.emit(n=1, line=row.line, items=1)", "Output.items: an integer cannot be put there"),
        ("out.emit(n=1, line=row.line, items=state.few)", "Output.items: an array of u8 cannot be put there"),
        # Functions.
        ("return out", f"an output {ONE_NAME}"),
        ("def inner():\n    pass",
         f"`def inner():` {NO_PART}: functions within functions: write it beside the operator, and hand it "
         "what it needs"),
        ("x = some(1)\n\n\ndef some(a):  # here\n    if a:\n        return 1",
         "returns a value on some ways through it and nothing on others", "some"),
        ("x = some(1)\n\n\ndef some(a):\n    if a:\n        return 1\n    return  # here",
         "an integer and nothing cannot be one value", "some"),
        ("x = some(1)\n\n\ndef some(a, b=1):  # here\n    return a",
         "an operator takes plain positional arguments, without defaults or stars",
         "some"),
        ("x = again(1)\n\n\ndef again(a):  # here\n    return again(a)",
         "recursion is not supported: write a loop",
         "again"),
        ("x = unnamed(1)\n\n\nunnamed = lambda a: a  # here", "must be a plain def, not a lambda", "<lambda>"),
        ("x = made(1)\n\n\nexec(compile('def made(a): return a', '<made>', 'exec'))",
         "its source cannot be read: could not get source code", "made"),
        # What people write first.
        ("state.n = f'{row.a}'",
         f"`f'{{row.a}}'` {NO_PART}: f-strings make text, and operators only cut it: emit the values as fields"),
        ("x = [i for i in range(3)]",
         f"`[i for i in range(3)]` {NO_PART}: comprehensions: write a for loop over range(...), and keep "
         "values in an Array or Ring of the state"),
        ("x = {i for i in range(3)}",
         f"`{{i for i in range(3)}}` {NO_PART}: comprehensions: write a for loop over range(...), and keep "
         "values in a Set of the state"),
        ("x = {i: i for i in range(3)}",
         f"`{{i: i for i in range(3)}}` {NO_PART}: comprehensions: write a for loop over range(...), and keep "
         "values in a Map of the state"),
        ("x = (i for i in range(3))",
         f"`(i for i in range(3))` {NO_PART}: comprehensions: write a for loop over range(...)"),
        ("x = {1}", f"`{{1}}` {NO_PART}: sets: a Set of the state keeps distinct values"),
        ("x = {1: 2}", f"`{{1: 2}}` {NO_PART}: dicts: a Map or Counter of the state keeps values by key"),
        ("try:\n    x = 1\nexcept Exception:\n    pass",
         f"`try:` {NO_PART}: try: ask before, with if; what fails is an error of the event"),
        ("raise ValueError('x')",
         f"`raise ValueError('x')` {NO_PART}: raise: out.drop() says that an event is invalid"),
        ("assert row.a > 0",
         f"`assert row.a > 0` {NO_PART}: assert: out.drop() says that an event is invalid, app.invariant what "
         "must hold of a result"),
        ("import math",
         f"`import math` {NO_PART}: imports: an operator uses what stands in its file, and streaming_core.api"),
        ("from math import sqrt",
         f"`from math import sqrt` {NO_PART}: imports: an operator uses what stands in its file, and "
         "streaming_core.api"),
        ("x = lambda a: a", f"`lambda a: a` {NO_PART}: lambda: write a def beside the operator"),
        ("yield row.a", f"`yield row.a` {NO_PART}: yield: out.emit(...) puts a row out"),
        ("del row", f"`del row` {NO_PART}: del: assign 0; containers have clear()"),
        ("match row.a:\n    case 1:\n        pass", f"`match row.a:` {NO_PART}: match: write if and elif"),
        ("class A:\n    pass",
         f"`class A:` {NO_PART}: classes: records are declared beside the operator, with @record"),
        ("async def f():\n    pass", f"`async def f():` {NO_PART}: async: write a plain def beside the operator"),
        ("if (y := row.a) > 1:\n    pass",
         f"`(y := row.a)` {NO_PART}: assignments within an expression: write it on a line of its own"),
        ("x = row.a is not None",
         f"`row.a is not None` {NO_PART}: is not: write !=; there is no None, a field always has a value"),
        ("x = row.line.split()",
         "a text has no split with 0 arguments: it has len(text), text[i], text[a:b], find(byte, start), == "
         "and !="),
        ("x = row.line == 'abc'",
         "a value of type str cannot be used in an operator: text comes from events: compare its bytes, "
         "line[0] == 97, or give it a number where events are made"),
        ("x = row.line == b'abc'",
         "a value of type bytes cannot be used in an operator: text comes from events: compare its bytes, "
         "line[0] == 97, or give it a number where events are made"),
        ("if row.line:\n    pass",
         "a text is not a number: it has len(text), text[i], text[a:b], find(byte, start), == and !="),
        ("x = np.sqrt(row.b)",
         "a value of type module cannot be used in an operator: an operator calls functions of its own file, "
         "and len, min, max, abs, int, float, bool"),
        ("x = math.sqrt(row.b)",
         "name 'math' is not known here: an operator knows its arguments and variables, and numbers, "
         "constants, tables and functions of its file"),
        ("x = sum(row.items)", "sum() cannot be called in an operator: write a for loop over range(...)"),
        ("x = sorted(row.items)", "sorted() cannot be called in an operator: write a for loop over range(...)"),
        ("x = str(row.a)", "str() cannot be called in an operator: operators only cut text: emit the value as a field"),
        ("x = round(row.b)", "round() cannot be called in an operator: int(x + 0.5) rounds what is not negative"),
        ("x = pow(row.a, 2)", "pow() cannot be called in an operator: multiply"),
        ("x = open('f')", "open() cannot be called in an operator: an operator reads its events, and nothing else"),
        ("print(f'{row.a}')",
         "print() cannot be called in an operator: out.emit puts rows out; `streaming-core record` shows what "
         "an operator takes"),
        ("x = isinstance(row.a, int)",
         "isinstance() cannot be called in an operator: an operator calls functions of its own file, and len, "
         "min, max, abs, int, float, bool"),
        ("x = min(row.items)", "min is not known here, or its arguments are not: it takes two numbers or more"),
        ("x = int()", "int is not known here, or its arguments are not: it takes one number"),
        ("for i in enumerate(row.items):\n    pass",
         f"`for i in enumerate(row.items):` {NO_PART}: for goes over range(...), without else: for i in "
         "range(len(...))"),
        ("for key in state.values:\n    pass",
         f"`for key in state.values:` {NO_PART}: for goes over range(...), without else: for i in "
         "range(len(...))"),
        ("state.seen = 1", "State.seen: only scalar fields can be assigned to; entries are written by add(x)"),
        ("state.values[1] = 2.0", "a map has no items to assign to: entries are written by put(key, value)"),
        ("x = state.values[1]", "a map has no items: it is read by get(key, default), key_at(i) or value_at(i)"),
        ("state.counts[row.a] += 1", "a counter has no items: it is read by get(key), key_at(i) or value_at(i)"),
        ("state.last.pop()", "a ring has no pop with 0 arguments: it has append(value), clear()"),
        ("state.values.items()",
         "a map has no items with 0 arguments: it has get(integer, value), put(integer, value), "
         "key_at(integer), value_at(integer), clear()"),
        ("x = row['a']", "a field is read by its name: row.field"),
        ("x = k", "name 'k' is not known here: a parameter is read as app.params.k"),
        ("x = app.params['k']",
         "a value of type App cannot be used in an operator: a parameter is read as app.params.<name>"),
        ("x = [0] * 3", f"`[0]` {NO_PART}: lists: an Array or Ring of a record keeps several values"),
        ("out.emit(Output(n=1))", "emit takes every field by name: emit(n=..., line=..., items=...)"),
        ("x = Output(n=1)", "Output(...) is no value: out.emit(field=value, ...) puts a row out"),
        ("out.n = 1",
         "an output has no field 'n': out.emit(field=value, ...) puts a row out, out.drop() none, each on a "
         "line of its own"),
        ("out.append(1)",
         "out.append(...) is no value: out.emit(field=value, ...) puts a row out, out.drop() none, each on a "
         "line of its own"),
        ("emit(n=1)", "calls take positional arguments: no names, no stars"),
        ("x = row.Line", "Event has no field 'Line'; it has ts, a, b, p, line, items"),
        ("x = row.line + row.line",
         "a text is not a number: it has len(text), text[i], text[a:b], find(byte, start), == and !="),
        ("out.emit(n=1, line='abc', items=row.items)",
         "a value of type str cannot be used in an operator: text comes from events: compare its bytes, "
         "line[0] == 97, or give it a number where events are made"),
        ("state.few = [1, 2, 3]", f"`[1, 2, 3]` {NO_PART}: lists: an Array or Ring of a record keeps several values"),
        ("seen.append(row.a)\n\n\nseen = []",
         "a value of type list cannot be used in an operator: what lasts from event to event is a field of "
         "the state: an Array, Ring or Queue"),
        ("seen[row.a] = 1  # here\n\n\nseen = {}",
         "a value of type dict cannot be used in an operator: what lasts from event to event is a field of "
         "the state: a Map or Counter"),
        ("count += 1\n\n\ncount = 0",
         "variable 'count' may have no value yet: what stands outside an operator is not changed by it; what "
         "lasts from event to event is a field of the state"),
        ("state.n = twice(row.a)\n\n\ndef twice(a):\n    b = a * 2",
         "State.n: nothing cannot be stored there: what is called returns none"),
        ("x = twice(row.a)\n\n\ndef twice(a):\n    a * 2  # here",
         f"`a * 2` {NO_PART}: a value that nobody uses: return it, assign it, or leave it out", "twice"),
        ("x = one(1)\n\n\ndef one(a):\n    return two(a)\n\n\ndef two(a):\n    return one(a)",
         "recursion is not supported: write a loop", "one"),
    ],
    "queue": [
        ("x = state.waiting[0]", "a row of a queue is read by its fields: queue[i].field"),
        ("state.waiting[0]", f"`state.waiting[0]` {NO_PART}: steps in a slice: text[a:b] is all there is"),
        ("x = state.waiting[0].missing", "Item has no field 'missing'; it has k, y"),
        ("x = state.waiting[0.5].k", "a float is not an integer"),
        ("x = state.waiting[0:1]", "only text can be sliced"),
        ("x = state.waiting.n", "a queue has no field 'n': it has append(field=value, ...), popleft(), clear()"),
        ("state.waiting[0].k = 1", "Item.k: this row is read-only here"),
        ("state.waiting[0] = 1", "a queue has no items to assign to: entries are written by append(field=value, ...)"),
        ("state.waiting.append(1, 0.5)", "append takes every field by name: append(k=..., y=...)"),
        ("state.waiting.append(k=1)", "append of Item needs exactly: k, y; y is missing"),
        ("state.waiting.append(k=1, y=0.5, n=1)", "append of Item needs exactly: k, y; it has no n"),
        ("state.waiting.append(k=0.5, y=0.5)", "Item.k: a float cannot be stored there"),
        ("state.waiting.append(k=1, y=row.line)", "Item.y: a text cannot be stored there"),
        ("x = state.waiting.append(k=1, y=0.5)", "calls take positional arguments: no names, no stars"),
        ("x = state.waiting.append(1)",
         "a queue has no append with 1 argument: it has append(field=value, ...), popleft(), clear()"),
        ("x = state.waiting.popleft()", "there is no value to assign: what is called returns none"),
        ("state.waiting.popleft(1)",
         "a queue has no popleft with 1 argument: it has append(field=value, ...), popleft(), clear()"),
        ("x = 1 in state.waiting", "`in` asks a set or a map"),
        ("x = same(state.waiting[0])", "a row of a queue is read by its fields: queue[i].field"),
    ],
    "plan": [
        ("txn.row(rows, event.a).n",
         f"`txn.row(rows, event.a).n` {NO_PART}: a value that nobody uses: return it, assign it, or leave it "
         "out"),
        ("x = txn.row(rows, event.a).n", "fields of table rows are seen by conditions and modifications only"),
        ("x = txn.row(3, event.a)", "the first argument must be a table of the application"),
        ("x = txn.row(foreign, event.a)", "foreign is not of application NAME"),
        ("x = txn.row(rows, 0.5)", "a float is not an integer"),
        ("x = txn.result(rows, 0)", "txn.row belongs to the transaction, txn.result to what comes after it"),
        ("txn.commit()", "txn.commit is not known, or its arguments are not"),
        ("txn.row(rows, event.a)", "txn.row is not known, or its arguments are not"),
        ("txn.modify(row=1)", "calls take positional arguments: no names, no stars"),
        ("txn.modify(event.a, change)", "txn.modify takes rows named by txn.row"),
        ("txn.modify(txn.row(rows, 0), 3)", "modify takes a plain function of the application"),
        ("txn.modify(txn.row(rows, 0), change, 0.5)", "txn.modify takes rows named by txn.row"),
        ("txn.modify(txn.row(rows, 0), change, 1, txn.row(rows, 1))", "txn.modify takes rows named by txn.row"),
        ("row = txn.row(rows, 0)\ntxn.modify(row, takes, row)\n\n\ndef takes(row, other, event):\n"
         "    other.n = 1  # here",
         "State.n: this row is read-only here", "takes"),
        ("row = txn.row(rows, 0)\ntxn.modify(row, looks, row)\n\n\ndef looks(row, other, event):\n"
         "    row.n = len(other.seen)  # here",
         "State.seen: no set, map, counter or top-k is seen where a condition or modification reads several rows",
         "looks"),
        ("txn.modify(txn.row(rows, 0), change, 1)", "takes 2 arguments, is given 3", "change"),
        ("txn.require(event.a > 0)", "require takes a plain function of the application"),
        ("txn.require(operated)", "require takes a plain function of the application"),
        ("txn.require(holds, 3, txn.row(rows, 0))", "txn.require takes rows named by txn.row"),
        ("txn.require(nothing, 3)", "txn.require takes rows before the integer"),
        ("txn.require(holds, txn.row(rows, 0), 0.5)", "txn.require takes rows named by txn.row"),
        ("txn.require(nothing)", "condition nothing returns nothing, not a truth value"),
        (f"row = txn.row(rows, 0)\ntxn.require(holds{', row' * 101})  # here", "txn.require reads at most 100 rows"),
        ("txn.require(writes, txn.row(rows, 0))\n\n\ndef writes(row, event):\n    row.n = 1  # here\n    return True",
         "State.n: this row is read-only here", "writes"),
        ("txn.require(adds, txn.row(rows, 0))\n\n\ndef adds(row, event):\n    return row.seen.add(1)  # here",
         "State.seen: this row is read-only here", "adds"),
        ("row = txn.row(rows, 0)\ntxn.require(both, row, row)\n\n\ndef both(row, other, event):\n"
         "    return 1 in row.seen  # here",
         "State.seen: no set, map, counter or top-k is seen where a condition or modification reads several rows",
         "both"),
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
        ("x = window.key.word", "Every has no field 'word'; it has index"),
        ("row.ts = 1", "Event.ts: this row is read-only here"),
    ],
    "result": [
        ("window.key.a = 1", "Key.a: this row is read-only here"),
    ],
    "keys": [
        ("keys.add(n=1)", "keys.add of Key needs exactly: n, word; word is missing"),
        ("keys.add(1, row.line)", "keys.add takes every field by name: keys.add(n=..., word=...)"),
        ("keys.add(n=0.5, word=row.line)", "Key.n: a float cannot be stored there"),
        ("keys.add(n=1, word=row.a)", "Key.word: an integer cannot be put there"),
        ("also = keys", f"keys {ONE_NAME}"),
        ("x = keys.length", "keys has no field 'length'"),
    ],
}  # fmt: skip
# What is refused is no expression or statement: the application's text, changed.
DECLARED = [
    ("out):\n    pass\n\n\napp", "out):\n    return 1\n\n\napp",
     r"operator operate \(NAME.py:\d+\): an operator returns nothing: out.emit\(...\) puts a row out"),
    ("row, state, out", "row, state", r"operator operate \(NAME.py:\d+\): takes 2 arguments, is given 3"),
    ("    n: u8\n", "    n: text\n", r"NAME.py:\d+: app NAME: record State\(.*\): n is a Text, no table has any: "
     "key_by a text, or give it a number where events are made"),
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
    # What people write first.
    ("@record\nclass Event", "from dataclasses import dataclass\n\n\n@dataclass\nclass Event",
     r"NAME.py:\d+: app NAME: event Event is no record: put @record above its class, not @dataclass"),
    ("@record\nclass Event", "class Event", r"NAME.py:\d+: app NAME: event Event is no record: put @record above .*"),
    ("@record\nclass Event", "@record()\nclass Event", r"NAME.py:\d+: write @record above a class, without brackets"),
    (".process(operate, State, Output)", ".process(operate, dict, Output)",
     r"NAME.py:\d+: app NAME: state dict is no record: put @record above its class, not @dataclass"),
    (".process(operate, State, Output)", ".process(operate, State, int)",
     r"NAME.py:\d+: app NAME: output int is no record: put @record above its class, not @dataclass"),
    ("    a: i64\n", "    a: int\n",
     r"NAME.py:\d+: record Event.a: int is not a field type: write i64, or i8, i16, i32, u8, u16, u32"),
    ("    b: f64\n", "    b: float\n", r"NAME.py:\d+: record Event.b: float is not a field type: write f64"),
    ("    p: boolean\n", "    p: bool\n", r"NAME.py:\d+: record Event.p: bool is not a field type: write boolean"),
    ("    line: text\n", "    line: str\n", r"NAME.py:\d+: record Event.line: str is not a field type: write text"),
    ("    a: i64\n", "    a: list[i64]\n",
     r"NAME.py:\d+: record Event.a: list is not a field type: write Array\[i64, 3\] in rows, Ring.* in states"),
    ("    a: i64\n", "    a: dict\n",
     r"NAME.py:\d+: record Event.a: dict is not a field type: write Map\[i64, f64\] or Counter\[i64\], in states"),
    ("    a: i64\n", "    a: 3\n", r"NAME.py:\d+: record Event.a: 3 is not a field type"),
    ("    a: i64\n", "    a: 'i64'\n", r"NAME.py:\d+: record Event.a: write its type plainly: no quotes.*"),
    ("    a: i64\n", "    a: i64 = 5\n",
     r"NAME.py:\d+: record Event.a: a field has no default: it begins as zero, or empty"),
    ("    a: i64\n", "    a = i64\n",
     r"NAME.py:\d+: record Event.a: a record has fields and nothing else: write a: i64"),
    ("Array[u8, 2]", "Array[u8]", r"NAME.py:\d+: Array is declared with 2: Array\[item, length\]"),
    ("Array[u8, 2]", 'Array[u8, "kk"]',
     r"record Event.items: size 'kk': no parameter 'kk'; known: k, word, large, p"),
    ("Map[i64, f64]", "Map[i64]", r"NAME.py:\d+: Map is declared with 2: Map\[key, value\]"),
    ("Param(2)", "2", r"NAME.py:\d+: app NAME: parameter k: write Param\(2\), not 2"),
    ("Param(2)", "Param([])",
     r"NAME.py:\d+: app NAME: parameter k: its default must be a number, a truth value or text"),
    ("Param(2)", "Param(2, minimum=5)", r"NAME.py:\d+: parameter k: 2 is below the minimum 5"),
    ("app.source(Event).process", "app.source(Event).key_by(lambda row: row.a).process",
     r"NAME.py:\d+: key_by takes the name of a field, such as key_by\('user'\)"),
    ("app.source(Event).process", "app.source(Event).map",
     r"NAME.py:\d+: AttributeError: a stream has no 'map': it has flat_map, key_by, process, window, union and sink"),
    ("@app.generates", "@app.generates()",
     r"NAME.py:\d+: app NAME: write @app.generates above the generator, without brackets"),
    ("def operate(", "async def operate(", r"operator operate \(NAME.py:\d+\): must be a plain def, not async def"),
    (
        ".process(operate, State, Output)", ".flat_map(operate, Output, scratch=Huge)",
        "record Huge: 65544 bytes are too many to work in, 65536 the most",
    ),
]  # fmt: skip
CASES = [(kind, *case, *["operate"] * (3 - len(case))) for kind, cases in REFUSED.items() for case in cases]
