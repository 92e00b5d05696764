"""Mistakes in operators and declarations, and the error for each."""

# What a text can do, as errors say it.
OF_TEXT = (
    "use len, text[i], text[a:b], +, in, find, startswith, endswith, strip, lower, upper, int, float, comparisons, or "
    "for part in text.split(...)"
)

# An application of one operator. A case holds the body of the operator, further functions, and the reason in the error.
# It names the faulty function if that is not the operator. The error cites the line marked `# here`. Without a mark, it
# cites the first line of the body, or the `def`.
HEAD = '''"""An application that breaks the language."""
import numpy as np

from streaming_core.api import (
    App, Array, Counter, Decimal, Map, Param, Queue, Ring, Set, TopK, boolean, decimal, duration, f64, i64, record,
    sliding, text, u8,
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
    names: Map[text, text]


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
    values: Array[i64, 8193]


@record
class Output:
    n: i64
    line: text
    items: Array[u8, 2]


rows = app.table("rows", State, 4)
people = app.table("people", State, 9, key=text, lookup="insert")
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
def posted(event, txn, out):
    pass
"""
POST = """

@app.transaction(input=Event, output=Output)
def planned(event, txn):
    txn.read(txn.row(rows, event.a))


planned.post(operate)
"""
# Cases without a function use `idle`, which does nothing.
WINDOW = """

def idle(row, window, state, out):
    pass


@record
class Key:
    n: u8
    word: text


app.source(Event).key_by(KEYS).window(sliding("k", every=1)).apply(FUNCTIONS, state=State, output=Output).sink()
"""
TAIL = """

@app.generates
def events(params, seed, start, stop):
    return {}
"""


def _window(keys: str, functions: str) -> str:
    """The declaration with these arguments of `key_by` and `apply`."""
    return WINDOW.replace("KEYS", keys).replace("FUNCTIONS", functions)


KINDS = {
    "process": ("row, state, out", PROCESS),
    "queue": ("row, state, out", PROCESS.replace("State", "Held")),
    "plan": ("event, txn", "\n\noperated = app.transaction(input=Event, output=Output)(operate)\n" + PLAN),
    "post": ("event, txn, out", POST),
    "update": ("row, window, state, out", _window("every=1", "update=operate")),
    "result": ("window, state, out", _window('"a"', "update=idle, result=operate")),
    "keys": ("row, keys", _window("Key, keys=operate", "update=idle")),
}

REFUSED = {
    "process": [
        # Statements.
        ("with row:\n    pass",
         "`with row:`: operators do not support `with`; remove it, because an operator opens nothing"),
        ("x: i64", "`x: i64`: operators do not support variables without a value; assign one, such as 0"),
        ("x = y = 1", "`x = y = 1`: operators do not support chained assignments; assign to one target per line"),
        ("global x\nx = 1",
         "`global x`: operators do not support global variables; keep values from event to event in a field of the "
         "state"),
        ("x = 1\n'said'  # here",
         "`'said'`: the code does not use this value; return it, assign it, or delete the line"),
        ("row.a", "`row.a`: the code does not use this value; return it, assign it, or delete the line"),
        ("while row.a:\n    pass\nelse:\n    pass",
         "`while row.a:`: operators do not support while loops with else; move the else branch after the loop"),
        ("for i in range(3):\n    pass\nelse:\n    pass",
         "`for i in range(3):`: operators do not support for loops with else or over anything but range(...), "
         "queues and text.split(...); write for i in range(len(...))"),
        ("for i in row.items:\n    pass",
         "a loop goes over range(...), a queue or text.split(...), not over an array of u8"),
        ("for i, j in range(3):\n    pass",
         "`for i, j in range(3):`: operators do not support for loops with else or over anything but range(...), "
         "queues and text.split(...); write for i in range(len(...))"),
        ("for i in range(0.5):\n    pass", "a float is not an integer; convert it with int(...)"),
        ("for i in range():\n    pass", "range() takes one to three integers"),
        ("range = 3\nfor i in range(3):  # here\n    pass", "cannot call `range`, which is not a function"),
        # Stores.
        ("row.a = 1", "cannot assign to Event.a: the row is read-only here"),
        ("state.few = row.items",
         "cannot assign to State.few, which is neither a scalar nor a text; assign to single items: few[i] = ..."),
        ("state.missing = 1", "State has no field 'missing'; it has n, x, few, last, seen, values, counts, best"),
        ("state.n = 0.5", "cannot store a float in State.n, which holds u8; convert it with int(...)"),
        ("state.x = row.line", "cannot store a text in State.x, which holds f64"),
        ("state.last[0] = 1", "cannot assign to an item of a ring; write an entry with append(x)"),
        ("row.items[0] = 1", "cannot assign to an item of Event.items: the row is read-only here"),
        ("state.few[0:1] = 1", "cannot assign to `state.few[0:1]`; assign to one variable, field or item"),
        ("x, y = 1, 2", "`(1, 2)`: operators do not support tuples; give each value a name of its own"),
        ("x, y = 1", "cannot assign to `(x, y)`; assign to one variable, field or item"),
        ("x = nothing(row)", "the called function returns nothing, so there is no value to assign"),
        ("x = 1\nx = row.line  # here",
         "this value is an integer in one place and a text in another; it must have one type"),
        ("put = out", "cannot assign, choose or return an output; use the argument by its own name"),
        # Variables.
        ("if row.a:\n    x = 1\nstate.n = x  # here",
         "variable 'x' may have no value here; assign it on every path to this line"),
        ("for i in range(row.a):\n    pass\nstate.n = i  # here",
         "variable 'i' may have no value here; assign it on every path to this line"),
        ("while row.a > state.n:\n    x = 1\nstate.n = x  # here",
         "variable 'x' may have no value here; assign it on every path to this line"),
        ("while True:\n    if row.a:\n        break\n    x = 1\n    if row.p:\n        break\nstate.n = x  # here",
         "variable 'x' may have no value here; assign it on every path to this line"),
        ("if app.p:\n    pass\nelse:\n    x = 1\nstate.n = x  # here",
         "variable 'x' may have no value here; assign it on every path to this line"),
        ("some(1)\n\n\ndef some(_floordiv):  # here\n    pass",
         "the name _floordiv is reserved; remove the leading underscore", "some"),
        # Names.
        ("x = nowhere",
         "unknown name 'nowhere'; an operator can use its arguments and variables, and the numbers, constants, "
         "tables and functions of its file"),
        ("x = holds", "cannot use a value of type function; call the function"),
        ("x = None", "cannot use a value of type NoneType; only a field declared with `| None` can be null, and "
         "a variable cannot hold one"),
        ("x = '\\ud800'", "'\\ud800' is not UTF-8; write its bytes as b\"...\""),
        ("x = row.a + 'said'", "a text is not a number; " + OF_TEXT),
        ("x = row.a == 'said'", "a text is not a number; " + OF_TEXT),
        ("x = row.line in ()", "`()`: operators do not support tuples; give each value a name of its own"),
        ("x = row.line in ('a', 1)", "a text is not an integer"),
        ("x = row.b in (1, 2)", "a float is not an integer; convert it with int(...)"),
        ("x = row.b in row.line", "a float is not an integer; convert it with int(...)"),
        ("x = row.line.startswith(97)",
         "a text has no method startswith with 1 argument; " + OF_TEXT),
        ("x = row.line.find()", "a text has no method find with 0 arguments; " + OF_TEXT),
        ("x = row.line.strip(' ')", "a text has no method strip with 1 argument; " + OF_TEXT),
        ("x = duration(row.line)", 'duration() takes a text such as "1h30m"'),
        ('x = duration("1us")', "'1us' is no whole number of the application's unit of time, ms"),
        ('x = duration("k")', "'k' is not a duration; write for example 90s, 1h30m or 250ms"),
        ("x = decimal(row.line, 2)", 'decimal() takes a text and a scale, such as decimal("0.908", 3)'),
        ('x = decimal("1")', 'decimal() takes a text and a scale, such as decimal("0.908", 3)'),
        ('x = decimal("1", row.a)', 'decimal() takes a text and a scale, such as decimal("0.908", 3)'),
        ('x = decimal("1", 19)', "decimal: the scale must be between 0 and 18, got 19"),
        ('x = decimal("0.908", 2)', "'0.908' has more than 2 digits after the point"),
        ('x = decimal("one", 2)', "'one' is not a decimal number; write for example \"0.908\""),
        ('x = decimal("1e30", 2)', "'1e30' does not fit Decimal[2], which holds 64 bits of units"),
        ("x = str(row.b)", "str() takes one integer, not a float"),
        ("x = str(row.p)", "str() takes one integer, not a boolean"),
        ("x = str(row.a, 2)", "str() takes one integer"),
        ("x = int(row.line, 16)", "int() takes one number or text"),
        ("for part in row.line.split(',', 2):\n    pass",
         'split() takes one byte, such as " " or ",", or nothing, for words between whitespace'),
        ("for part in row.line.split(', '):\n    pass",
         'split() takes one byte, such as " " or ",", or nothing, for words between whitespace'),
        ("for part in row.line.split(row.line):\n    pass",
         'split() takes one byte, such as " " or ",", or nothing, for words between whitespace'),
        ("for part in row.items.split(','):\n    pass", "split() works only on a text, not on an array of u8"),
        ("for part in row.line:\n    pass", "a loop goes over range(...), a queue or text.split(...), not over a text"),
        ("x = app", "cannot use a value of type App; read a parameter as app.params.<name>"),
        ("x = 1 << 3 + 9223372036854775808", "the number 9223372036854775808 does not fit in a 64-bit integer"),
        ("x = app.params.large", "the number 1180591620717411303424 does not fit in a 64-bit integer"),
        ("x = app.params.word + 1", "a text is not a number; " + OF_TEXT),
        ("x = app.params.missing", "unknown parameter 'missing'; known: k, word, large, p"),
        ("x = other.missing", "unknown parameter 'missing'; known: k, word, large, p"),
        ("x = strange[0]", "strange belongs to another application than NAME"),
        # Expressions.
        ("x = [1, 2]", "`[1, 2]`: operators do not support lists; keep several values in an Array or Ring of a record"),
        ("x = row.a ** 2", "`row.a ** 2`: operators do not support `**`; multiply instead"),
        ("x = row.a @ 2", "`row.a @ 2`: operators do not support `@`; multiply in a loop"),
        ("x = row.a is row.b",
         "`row.a is row.b`: operators do not support `is` but for `field is None`; write =="),
        ("x = 1 in state.seen in state.seen", "`1 in state.seen in state.seen`: operators do not support this"),
        ("x = 0 < same(row.a) < 3",
         "the middle of a < b < c cannot contain a call; assign its result to a variable first"),
        ("x = row.a in same(state).seen",
         "the container of `in` cannot contain a call; assign its result to a variable first"),
        ("x = len(same(state).few)", "the array of len() cannot contain a call; assign its result to a variable first"),
        ("same(state).few[0] += 1",
         "the row or array of an augmented assignment cannot contain a call; assign its result to a variable first"),
        ("return state.last.append(1) if row.p else state.last.append(2)",
         "cannot choose between calls that return nothing; write if and else"),
        ("x = state.last[-1]", "-1 does not count from the end; write len(state.last) - 1"),
        ("state.few[-3] = 1", "-3 does not count from the end; write len(state.few) - 3"),
        ("x = row.a in row.items", "`in` works on a set, a map, a text or a tuple, not on an array of u8"),
        ("x = 0.5 in state.seen", "a float is not an integer; convert it with int(...)"),
        ("x = row.b & 1", "&, | and ^ do not work on a float; convert it with int(...)"),
        ("x = row.b << 1", "<< and >> do not work on a float; convert it with int(...)"),
        ("x = ~row.p", "~ does not work on a boolean; write `not`"),
        ("x = ~row.b", "a float is not an integer; convert it with int(...)"),
        ("x = row.line + 1",
         "a text is not a number; " + OF_TEXT),
        ("x = row.line < 1", "a text is not a number; " + OF_TEXT),
        ("x = -row.line",
         "a text is not a number; " + OF_TEXT),
        ("x = row.a if row.p else row.line",
         "this value is an integer in one place and a text in another; it must have one type"),
        ("(out if row.p else out).drop()",
         "cannot assign, choose or return an output; use the argument by its own name"),
        ("x = row.line[::2]", "`row.line[::2]`: operators do not support slices with a step; write text[a:b]"),
        ("x = row.items[0:1]", "slicing works only on a text, not on an array of u8"),
        ("x = row.line[0:0.5]", "a float is not an integer; convert it with int(...)"),
        ("state.last += 1", "a ring is not a number"),
        ("x = row.a[0]", "cannot index an integer"),
        ("x = state.seen[0]", "cannot index a set; use `x in s` or at(i)"),
        ("x = row.missing", "Event has no field 'missing'; it has ts, a, b, p, line, items"),
        ("x = row.a.b", "an integer has no field 'b'"),
        ("x = (row if row.p else row).line", "read the text Event.line from a variable that holds the row"),
        # Calls.
        ("x = same(x=1)", "pass arguments by position; operators do not support keyword arguments or *"),
        ("x = same(*row)", "pass arguments by position; operators do not support keyword arguments or *"),
        ("x = row.line.find(*row)", "pass arguments by position; operators do not support keyword arguments or *"),
        ("x = row()", "cannot call `row`, which is not a function"),
        ("x = same(1)(2)", "cannot call `same(1)`, which is not a function"),
        ("x = text(row.a)", "text is a type; write str(number) for the decimal digits of an integer"),
        ("x = np(1)",
         "cannot call np; an operator can call functions of its own file, and len, min, max, abs, int, float, "
         "bool and str"),
        ("x = same(nothing(row))", "an argument of same() is a call that returns nothing"),
        ("x = same(1, 2)", "takes 1 argument, but the call passes 2: an integer, an integer", "same"),
        ("x = range(3)", "range() works only in a for loop: for i in range(...)"),
        ("x = len(row.a)", "len() takes a text, an array, a container or a constant"),
        ("print(row.a)",
         "cannot call print(); emit rows with out.emit(...), or inspect an operator's input with `streaming-core "
         "record`"),
        ("state.seen.put(1, 2)",
         "a set has no method put with 2 arguments; it has add(key), remove(key), at(integer), clear()"),
        ("state.seen.add(1, 2)",
         "a set has no method add with 2 arguments; it has add(key), remove(key), at(integer), clear()"),
        ("state.counts.get(1, 2)",
         "a counter has no method get with 2 arguments; it has add(key, integer), remove(key), get(key), "
         "key_at(integer), value_at(integer), clear()"),
        ("state.seen.add(0.5)", "a float is not an integer; convert it with int(...)"),
        ("state.last.append(0.5)", "cannot store a float in State.last, which holds i64; convert it with int(...)"),
        ("state.values.put(1, row.line)", "cannot store a text in State.values, which holds f64"),
        ("x = out.emit(n=1, line=row.line, items=row.items)",
         "out.emit(...) returns no value; call out.emit(field=value, ...) or out.drop() on a separate line"),
        # Emitted rows.
        ("out.emit(1, 2, 3)", "emit() takes every field by name; write emit(n=..., line=..., items=...)"),
        ("out.emit(row, 2)", "emit() takes every field by name; write emit(n=..., line=..., items=...)"),
        ("out.emit(row)", "emit(row): Event has no field n; add n=..."),
        ("out.emit(n=1)", "emit() is missing line, items; write emit(n=..., line=..., items=...)"),
        ("out.emit(n=1, line=row.line, items=row.items, m=1)",
         "emit() has no field m; write emit(n=..., line=..., items=...)"),
        ("out.emit(n=row.b, line=row.line, items=row.items)",
         "cannot store a float in Output.n, which holds i64; convert it with int(...)"),
        ("out.emit(n=1, line=1, items=row.items)", "cannot store an integer in Output.line, which holds a text"),
        ("out.emit(n=1, line=row.line, items=1)", "cannot store an integer in Output.items, which holds 2 items of u8"),
        ("out.emit(n=1, line=row.line, items=state.few)",
         "cannot store an array of u8 in Output.items, which holds 2 items of u8"),
        # Functions.
        ("return out", "cannot assign, choose or return an output; use the argument by its own name"),
        ("def inner():\n    pass",
         "`def inner():`: operators do not support nested functions; write the def at the top level of the file and "
         "pass it the values that it needs"),
        ("x = some(1)\n\n\ndef some(a):  # here\n    if a:\n        return 1",
         "some paths return a value and others nothing; return one on every path", "some"),
        ("x = some(1)\n\n\ndef some(a):\n    if a:\n        return 1\n    return  # here",
         "this value is an integer in one place and nothing in another; it must have one type", "some"),
        ("x = some(1)\n\n\ndef some(a, b=1):  # here\n    return a",
         "operators take plain positional arguments; remove defaults, * and **", "some"),
        ("x = again(1)\n\n\ndef again(a):  # here\n    return again(a)",
         "operators do not support recursion; write a loop", "again"),
        ("x = unnamed(1)\n\n\nunnamed = lambda a: a  # here",
         "an operator must be a plain def, not a lambda", "<lambda>"),
        ("x = made(1)\n\n\nexec(compile('def made(a): return a', '<made>', 'exec'))",
         "cannot read its source: could not get source code", "made"),
        # Common first attempts.
        ("state.n = f'{row.a}'",
         "`f'{row.a}'`: operators do not support f-strings; write a + \":\" + str(number)"),
        ("x = [i for i in range(3)]",
         "`[i for i in range(3)]`: operators do not support comprehensions; write a for loop over range(...) and "
         "keep the values in an Array or Ring of the state"),
        ("x = {i for i in range(3)}",
         "`{i for i in range(3)}`: operators do not support comprehensions; write a for loop over range(...) and "
         "keep the values in a Set of the state"),
        ("x = {i: i for i in range(3)}",
         "`{i: i for i in range(3)}`: operators do not support comprehensions; write a for loop over range(...) and "
         "keep the values in a Map of the state"),
        ("x = (i for i in range(3))",
         "`(i for i in range(3))`: operators do not support generator expressions; write a for loop over range(...)"),
        ("x = {1}", "`{1}`: operators do not support sets; keep distinct values in a Set of the state"),
        ("x = {1: 2}", "`{1: 2}`: operators do not support dicts; keep values by key in a Map or Counter of the state"),
        ("try:\n    x = 1\nexcept Exception:\n    pass",
         "`try:`: operators do not support `try`; check with if before the operation, because an operation that "
         "fails ends the run"),
        ("raise ValueError('x')",
         "`raise ValueError('x')`: operators do not support `raise`; call out.drop() to discard an invalid event"),
        ("assert row.a > 0",
         "`assert row.a > 0`: operators do not support `assert`; call out.drop() to discard an invalid event, or "
         "check results with app.invariant"),
        ("import math",
         "`import math`: operators do not support imports; an operator can use only what its own file defines, and "
         "streaming_core.api"),
        ("from math import sqrt",
         "`from math import sqrt`: operators do not support imports; an operator can use only what its own file "
         "defines, and streaming_core.api"),
        ("x = lambda a: a",
         "`lambda a: a`: operators do not support `lambda`; write a def at the top level of the file"),
        ("yield row.a", "`yield row.a`: operators do not support `yield`; call out.emit(...) to emit a row"),
        ("del row", "`del row`: operators do not support `del`; assign 0, or call clear() on a container"),
        ("match row.a:\n    case 1:\n        pass",
         "`match row.a:`: operators do not support `match`; write if and elif"),
        ("class A:\n    pass",
         "`class A:`: operators do not support classes; declare a record with @record at the top level of the file"),
        ("async def f():\n    pass",
         "`async def f():`: operators do not support `async`; write a plain def at the top level of the file"),
        ("if (y := row.a) > 1:\n    pass",
         "`(y := row.a)`: operators do not support assignments within an expression; assign on a separate line"),
        ("x = row.a is not None",
         "`row.a` is never None; only fields declared with `| None` can be null"),
        ("x = row.line.split()", "a text has no method split with 0 arguments; " + OF_TEXT),
        ("if row.line:\n    pass",
         "a text is not a number; " + OF_TEXT),
        ("x = np.sqrt(row.b)",
         "cannot use a value of type module; an operator can call functions of its own file, and len, min, max, "
         "abs, int, float, bool and str"),
        ("x = sum(row.items)", "cannot call sum(); write a for loop over range(...)"),
        ("x = sorted(row.items)", "cannot call sorted(); write a for loop over range(...)"),
        ("x = repr(row.a)",
         "cannot call repr(); concatenate texts with +, and write str(number) for decimal digits"),
        ("x = round(row.b)", "cannot call round(); int(x + 0.5) rounds numbers that are not negative"),
        ("x = pow(row.a, 2)", "cannot call pow(); multiply instead"),
        ("x = open('f')", "cannot call open(); an operator reads only its events"),
        ("x = isinstance(row.a, int)",
         "cannot call isinstance(); an operator can call functions of its own file, and len, min, max, abs, int, "
         "float, bool and str"),
        ("x = min(row.items)", "min() takes two or more numbers"),
        ("x = int()", "int() takes one number or text"),
        ("for i in enumerate(row.items):\n    pass",
         "`for i in enumerate(row.items):`: operators do not support for loops with else or over anything but "
         "range(...), queues and text.split(...); write for i in range(len(...))"),
        ("state.seen = 1",
         "cannot assign to State.seen, which is neither a scalar nor a text; write an entry with add(x)"),
        ("state.values[1] = 2.0", "cannot assign to an item of a map; write an entry with put(key, value)"),
        ("x = state.values[1]", "cannot index a map; use get(key, default), key_at(i) or value_at(i)"),
        ("state.counts[row.a] += 1", "cannot index a counter; use get(key), key_at(i) or value_at(i)"),
        ("state.last.pop()", "a ring has no method pop with 0 arguments; it has append(value), clear()"),
        ("state.values.items()",
         "a map has no method items with 0 arguments; it has get(key, value), put(key, value), remove(key), "
         "key_at(integer), value_at(integer), clear()"),
        ("x = row['a']", "read a field of a row by its name: row.field"),
        ("x = k", "unknown name 'k'; read the parameter as app.params.k"),
        ("x = app.params['k']", "cannot use a value of type App; read a parameter as app.params.<name>"),
        ("x = Output(n=1)", "cannot create Output(...); call out.emit(field=value, ...)"),
        ("out.n = 1", "an output has no field 'n'; call out.emit(field=value, ...) or out.drop() on a separate line"),
        ("out.append(1)",
         "out.append(...) does not exist; call out.emit(field=value, ...) or out.drop() on a separate line"),
        ("emit(n=1)", "unknown function emit(); call out.emit(field=value, ...) or out.drop() on a separate line"),
        ("x = row.Line", "Event has no field 'Line' (did you mean 'line'?); it has ts, a, b, p, line, items"),
        ("seen.append(row.a)\n\n\nseen = []",
         "cannot use a value of type list; keep values from event to event in an Array, Ring or Queue of the state"),
        ("seen[row.a] = 1  # here\n\n\nseen = {}",
         "cannot use a value of type dict; keep values from event to event in a Map or Counter of the state"),
        ("count += 1\n\n\ncount = 0",
         "variable 'count' may have no value here; an operator cannot change a variable of the file, so keep values "
         "from event to event in a field of the state"),
        ("state.n = twice(row.a)\n\n\ndef twice(a):\n    b = a * 2",
         "cannot store this call in State.n: the function returns nothing"),
        ("x = one(1)\n\n\ndef one(a):\n    return two(a)\n\n\ndef two(a):\n    return one(a)",
         "operators do not support recursion; write a loop", "one"),
    ],
    "queue": [
        ("for one in state.waiting:\n    state.waiting.clear()  # here",
         "a loop over state.waiting cannot call its clear(); call it after the loop"),
        ("for one in state.waiting:\n    one = 3  # here",
         "cannot assign to one in a loop over state.waiting; use another variable"),
        ("x = state.waiting[0]", "read a row of a queue field by field: queue[i].field"),
        ("state.names.put(1, row.line)", "an integer is no key of Held.names, whose keys are texts"),
        ("state.names.put(row.line, 1)", "cannot store an integer in Held.names, which holds a text"),
        ("x = state.waiting[0].missing", "Item has no field 'missing'; it has k, y"),
        ("x = state.waiting[0:1]", "slicing works only on a text, not on a queue"),
        ("x = state.waiting.n", "a queue has no field 'n'; it has append(field=value, ...), popleft(), clear()"),
        ("state.waiting[0].k = 1", "cannot assign to Item.k: the row is read-only here"),
        ("state.waiting[0] = 1", "cannot assign to an item of a queue; write an entry with append(field=value, ...)"),
        ("state.waiting.append(1, 0.5)", "append() takes every field by name; write append(k=..., y=...)"),
        ("state.waiting.append(k=1)", "append() is missing y; write append(k=..., y=...)"),
        ("state.waiting.append(k=1, y=0.5, n=1)", "append() has no field n; write append(k=..., y=...)"),
        ("state.waiting.append(k=0.5, y=0.5)",
         "cannot store a float in Item.k, which holds u8; convert it with int(...)"),
        ("state.waiting.append(k=1, y=row.line)", "cannot store a text in Item.y, which holds f64"),
        ("x = state.waiting.append(k=1, y=0.5)",
         "pass arguments by position; operators do not support keyword arguments or *"),
        ("x = state.waiting.append(1)",
         "a queue has no method append with 1 argument; it has append(field=value, ...), popleft(), clear()"),
        ("x = state.waiting.popleft()", "the called function returns nothing, so there is no value to assign"),
        ("state.waiting.popleft(1)",
         "a queue has no method popleft with 1 argument; it has append(field=value, ...), popleft(), clear()"),
        ("x = 1 in state.waiting", "`in` works on a set, a map, a text or a tuple, not on a queue"),
    ],
    "plan": [
        ("x = txn.row(rows, event.a).n",
         "cannot read a field of a table row here; pass the row to txn.require, txn.modify or txn.read"),
        ("x = txn.row(3, event.a)", "the first argument of txn.row must be a table of the application"),
        ("x = txn.row(foreign, event.a)", "foreign belongs to another application than NAME"),
        ("x = txn.row(rows, 0.5)", "a float is not an integer; convert it with int(...)"),
        ("x = txn.row(rows, event.line)", "a text is not an integer"),
        ("x = txn.row(people, event.a)", "the keys of table people are texts, not an integer"),
        ("x = txn.result(rows, 0)",
         "txn.result is available only after the transaction; write txn.row(table, key) here"),
        ("txn.commit()", "a transaction has no method 'commit'; it has row, require, modify, read, drop"),
        ("txn.row(rows, event.a)", "wrong call of txn.row; write row = txn.row(table, key)"),
        ("txn.modify(row=1)", "pass arguments by position; operators do not support keyword arguments or *"),
        ("txn.modify(event.a, change)", "txn.modify takes a row here; get one with txn.row(table, key)"),
        ("txn.modify(txn.row(rows, 0), 3)",
         "txn.modify takes a function here; write it with def at the top level of the file"),
        ("txn.modify(txn.row(rows, 0), change, 0.5)", "txn.modify takes a row here; get one with txn.row(table, key)"),
        ("row = txn.row(rows, 0)\ntxn.modify(row, takes, row)\n\n\ndef takes(row, other, event):\n    other.n = 1  # "
         "here",
         "cannot assign to State.n: the row is read-only here", "takes"),
        ("row = txn.row(rows, 0)\ntxn.modify(row, looks, row)\n\n\ndef looks(row, other, event):\n    row.n = "
         "len(other.seen)  # here",
         "State.seen is not available: a function over several rows cannot read a set, map, counter or top-k of them",
         "looks"),
        ("txn.modify(txn.row(rows, 0), change, 1)",
         "takes 2 arguments, but the call passes 3: a row of State, a row of Event, an integer", "change"),
        ("txn.require(event.a > 0)",
         "txn.require takes a function here; write it with def at the top level of the file"),
        ("txn.require(operated)", "txn.require takes a function here; write it with def at the top level of the file"),
        ("txn.require(holds, 3, txn.row(rows, 0))", "txn.require takes a row here; get one with txn.row(table, key)"),
        ("txn.require(nothing, 3)", "txn.require needs at least one row before the integer"),
        ("txn.require(nothing)", "condition nothing returns nothing; it must return a boolean or a number"),
        (f"row = txn.row(rows, 0)\ntxn.require(holds{', row' * 101})  # here",
         "txn.require can read at most 100 rows, got 101"),
        ("txn.require(writes, txn.row(rows, 0))\n\n\ndef writes(row, event):\n    row.n = 1  # here\n    return True",
         "cannot assign to State.n: the row is read-only here", "writes"),
        ("txn.require(adds, txn.row(rows, 0))\n\n\ndef adds(row, event):\n    return row.seen.add(1)  # here",
         "cannot change State.seen: the row is read-only here", "adds"),
        ("row = txn.row(rows, 0)\ntxn.require(both, row, row)\n\n\ndef both(row, other, event):\n    return 1 in "
         "row.seen  # here",
         "State.seen is not available: a function over several rows cannot read a set, map, counter or top-k of them",
         "both"),
        ("part(event, txn)\n\n\ndef part(event, txn):\n    txn.drop()  # here",
         "only the transaction and its post function can call drop(), not this helper", "part"),
        ("part(txn)\n\n\ndef part(txn):\n    txn.modify(txn.row(rows, 0), change)  # here",
         "a function that calls txn.modify must also take the event as an argument", "part"),
        # The reader derives the order of a plan from its source, by the name of its transaction.
        ("also = txn\nalso.modify(also.row(rows, 0), change)",
         "cannot assign, choose or return a transaction; use the argument by its own name"),
        ("part(event, txn, txn)\n\n\ndef part(event, txn, also):\n    also.drop()",
         "part() can take the transaction only once"),
        ("part(event, txn).drop()\n\n\ndef part(event, txn):\n    return txn  # here",
         "cannot assign, choose or return a transaction; use the argument by its own name", "part"),
    ],
    "post": [
        ("x = txn.row(rows, 0)", "txn.row is available only before the transaction; write txn.result(table, i) here"),
        ("x = txn.result(3, 0)", "the first argument of txn.result must be a table of the application"),
        ("x = len(txn.result(rows, 0).seen)", "State.seen is not available: txn.read returns only scalar fields"),
        ("x = txn.result(rows, 0).last[0]", "State.last is not available: txn.read returns only scalar fields"),
        ("x = txn.rejected",
         "the outcome of a transaction has no field 'rejected'; it has accepted and result(table, i)"),
        ("also = txn",
         "cannot assign, choose or return the outcome of a transaction; use the argument by its own name"),
        ("part(out)\n\n\ndef part(out):\n    out.drop()  # here",
         "only the transaction and its post function can call drop(), not this helper", "part"),
    ],
    "update": [
        ("x = window.middle", "a window has no field 'middle'; it has start, end and key"),
        ("also = window", "cannot assign, choose or return a window; use the argument by its own name"),
        ("window.end = 1", "cannot assign to a field of a window"),
        ("x = window.key.word", "Every has no field 'word'; it has index"),
        ("row.ts = 1", "cannot assign to Event.ts: the row is read-only here"),
    ],
    "result": [
        ("window.key.a = 1", "cannot assign to Key.a: the row is read-only here"),
    ],
    "keys": [
        ("keys.add(n=1)", "keys.add() is missing word; write keys.add(n=..., word=...)"),
        ("keys.add(1, row.line)", "keys.add() takes every field by name; write keys.add(n=..., word=...)"),
        ("keys.add(n=0.5, word=row.line)", "cannot store a float in Key.n, which holds u8; convert it with int(...)"),
        ("keys.add(n=1, word=row.a)", "cannot store an integer in Key.word, which holds a text"),
        ("also = keys", "cannot assign, choose or return keys; use the argument by its own name"),
        ("x = keys.length", "keys has no field 'length'; call keys.add(field=value, ...)"),
    ],
}  # fmt: skip
# Changes to the application's text outside expressions and statements.
WAYS = ' takes the key in one way: "field", ..., or a function, or Record and keys=function, or every=number'
PRICED = """
@record
class Priced:
    ts: i64
    price: Decimal[2]
    fee: Decimal[4] | None


@record
class Copy:
    price: Decimal[3]


def copy(row, out):
    out.emit(VALUES)


app.source(Priced).flat_map(copy, Copy).sink()
"""
DECLARED = [
    (PROCESS, PRICED.replace("VALUES", "row"),
     r"operator copy \(NAME.py:\d+\): emit\(row\): price is Decimal\[2\] in Priced and Decimal\[3\] in Copy; "
     r"add price=\.\.\."),
    (PROCESS, PRICED.replace("VALUES", "price=row.price"),
     r"operator copy \(NAME.py:\d+\): price is Decimal\[2\], but Copy.price is Decimal\[3\]; multiply or divide "
     "its units by a power of 10"),
    (PROCESS, PRICED.replace("VALUES", "price=1 if row.ts > 3 else row.fee"),
     r"operator copy \(NAME.py:\d+\): fee is Decimal\[4\], but Copy.price is Decimal\[3\]; multiply or divide "
     "its units by a power of 10"),
    ("out):\n    pass\n\n\napp",
     "out):\n    return 1\n\n\napp",
     r"operator operate \(NAME.py:\d+\): an operator returns nothing; emit rows with out.emit\(\.\.\.\)"),
    ("row, state, out",
     "row, state",
     r"operator operate \(NAME.py:\d+\): takes 2 arguments, but the call passes 3: a row of Event, a row of State, "
     "an output"),
    ("    n: u8\n",
     "    n: text\n",
     r"NAME.py:\d+: record State: n is a Text, which no table can hold; use it as the key of the table, or let the "
     "generator replace it by a number"),
    ("    n: u8\n", "    n: Decimal\n",
     r"NAME.py:\d+: record State.n: Decimal is not a field type; write Decimal\[2\], with the number of digits after "
     "the point"),
    ("    n: u8\n", "    n: Decimal[19]\n", r"NAME.py:\d+: Decimal: the scale must be between 0 and 18, got 19"),
    ("    n: u8\n", "    n: Decimal['k']\n", r"NAME.py:\d+: Decimal: the scale must be between 0 and 18, got 'k'"),
    ("    n: u8\n", "    n: __import__('decimal').Decimal\n",
     r"NAME.py:\d+: record State.n: Decimal is not a field type; write Decimal\[2\] of streaming_core.api, "
     "with the number of digits after the point"),
    ("app.source(Event).process", "decimal('0.5', 0)\napp.source(Event).process",
     r"NAME.py:\d+: '0.5' has more than 0 digits after the point"),
    ("    n: u8\n", "    n: u8 | None\n", r"NAME.py:\d+: record State: n can be null, which no table can hold"),
    ("    n: u8\n", "    n: u8 | i64\n", r"NAME.py:\d+: a field has one type; write u8, or u8 \| None"),
    ("    seen: Set[i64]\n",
     "    seen: Set[i64 | None]\n",
     r"NAME.py:\d+: Set: its items cannot be null; remove `\| None`"),
    ("    seen: Set[i64]\n",
     "    seen: None | Set[i64]\n",
     r"NAME.py:\d+: Set\[...\] \| None: only scalars and texts can be null; remove `\| None`"),
    ("    seen: Set[i64]\n",
     "    seen: Map[text, i64]\n",
     r"NAME.py:\d+: record State: seen is a Map of texts, which no table can hold; use it as the key of the "
     "table, or let the generator replace it by a number"),
    ("    a: i64\n", "    a: Set[i64]\n", r"NAME.py:\d+: record Event: a is a Set, which no event can hold"),
    ("    seen: Set[i64]\n",
     "    seen: Queue[Item]\n", r"NAME.py:\d+: record State: seen is a Queue, which no table can hold"),
    ("    y: f64\n",
     "    y: Set[i64]\n",
     r"NAME.py:\d+: record Held.waiting: items of Queue must be records of scalars and texts, but Item.y is a Set"),
    ("Queue[Item]", "Queue[i64]", r"NAME.py:\d+: record Held.waiting: items of Queue must be records"),
    (".process(operate, State, Output)",
     ".flat_map(operate, Output, scratch=Held)",
     r"NAME.py:\d+: record Held: waiting is a Queue, which no scratch can hold"),
    ("rows = app.table(\"rows\", State, 4)",
     "for i in range(257):\n    rows = app.table(f\"rows{i}\", State, 4)\n", "at most 256 tables, got 258"),
    ("rows = app.table(\"rows\", State, 4)",
     "rows = app.table(\"rows\", State, 4, key=f64)",
     r"NAME.py:\d+: table rows: a key is an integer or a text, not f64"),
    ("\"rows\", State, 4", "\"rows\", State, 0", "table rows: the size must be between 1 and 4294967295, got 0"),
    # Common first attempts.
    ("@record\nclass Event",
     "from dataclasses import dataclass\n\n\n@dataclass\nclass Event",
     r"NAME.py:\d+: source: event must be a record; put @record \(not @dataclass\) above its class, got Event"),
    ("@record\nclass Event",
     "class Event",
     r"NAME.py:\d+: source: event must be a record; put @record \(not @dataclass\) above its class, got Event"),
    ("@record\nclass Event",
     "@record()\nclass Event", r"NAME.py:\d+: write @record above a class, without parentheses"),
    (".process(operate, State, Output)",
     ".process(operate, dict, Output)",
     r"NAME.py:\d+: process: state must be a record; put @record \(not @dataclass\) above its class, got dict"),
    (".process(operate, State, Output)",
     ".process(operate, State, int)",
     r"NAME.py:\d+: process: output must be a record; put @record \(not @dataclass\) above its class, got int"),
    ("    a: i64\n",
     "    a: int\n", r"NAME.py:\d+: record Event.a: int is not a field type; write i64, or i8, i16, i32, u8, u16, u32"),
    ("    b: f64\n", "    b: float\n", r"NAME.py:\d+: record Event.b: float is not a field type; write f64"),
    ("    p: boolean\n", "    p: bool\n", r"NAME.py:\d+: record Event.p: bool is not a field type; write boolean"),
    ("    line: text\n", "    line: str\n", r"NAME.py:\d+: record Event.line: str is not a field type; write text"),
    ("    a: i64\n",
     "    a: list[i64]\n",
     r"NAME.py:\d+: record Event.a: list is not a field type; write Array\[i64, 3\] in rows, or Ring\[i64, 3\] or "
     r"Queue\[Record\] in states"),
    ("    a: i64\n",
     "    a: dict\n",
     r"NAME.py:\d+: record Event.a: dict is not a field type; write Map\[i64, f64\] or Counter\[i64\] in states"),
    ("    a: i64\n",
     "    a: 3\n",
     r"NAME.py:\d+: record Event.a: 3 is not a field type; write a type such as i64, f64, boolean or text"),
    ("    a: i64\n",
     "    a: 'i64'\n",
     r"NAME.py:\d+: record Event.a: the type is a string; remove the quotes, and the line 'from __future__ import "
     "annotations' if the file has it"),
    ("    a: i64\n",
     "    a: i64 = 5\n", r"NAME.py:\d+: record Event.a: remove the default; a field starts as zero or empty"),
    ("    a: i64\n", "    a = i64\n", r"NAME.py:\d+: record Event.a: a record can declare only fields; write a: i64"),
    ("Array[u8, 2]", "Array[u8]", r"NAME.py:\d+: Array takes 2 arguments, got 1; write Array\[item, length\]"),
    ("Array[u8, 2]",
     "Array[u8, \"kk\"]", "record Event.items: size 'kk': unknown parameter 'kk'; known: k, word, large, p"),
    ("Map[i64, f64]", "Map[i64]", r"NAME.py:\d+: Map takes 2 arguments, got 1; write Map\[key, value\]"),
    ("Param(2)", "2", r"NAME.py:\d+: parameter k: write Param\(2\) instead of 2"),
    ("Param(2)",
     "Param([])", r"NAME.py:\d+: Param: default must be True or False, an integer, a number or a text, got a list"),
    ("Param(2)", "Param(2, minimum=5)", r"NAME.py:\d+: parameter k must be at least 5, got 2"),
    *((
        "app.source(Event).process", f"app.source(Event).key_by({keys}).process", rf"NAME.py:\d+: key_by{line}"
    ) for keys, line in (
        ("'a', 'c'", r"\('a', 'c'\): 'c' is no key; Event has the integer and text fields ts, a, p, line"),
        ("'a', 'b'", r"\('a', 'b'\): 'b' is no key; Event has the integer and text fields ts, a, p, line"),
        ("'a', 'items'", r"\('a', 'items'\): 'items' is no key; Event has the integer and text fields ts, a, p, line"),
        ("'a', 'line', 'a'", r"\('a', 'line', 'a'\): a field is there twice; name each field once"),
        ("", WAYS),
        ("'a', operate", WAYS),
        ("operate, operate", WAYS),
        ("State, operate", WAYS),
        ("3", r": key must be a text, a record; put @record \(not @dataclass\) above its class or a plain def, got 3"),
        ("operate", r": function operate \(NAME.py:\d+\): write it as a plain def with one argument, the row"),
    )),
    *((
        "app.source(Event).process(operate",
        f"\n\ndef keyed(row):\n    {body}\n\n\napp.source(Event).key_by(keyed).process(operate",
        rf"NAME.py:\d+: key_by: function keyed \(NAME.py:\d+\): {line}",
    ) for body, line in (
        ("pass", "it must return a key on every path; end it with return"),
        ("return", "it must return a key on every path; end it with return"),
        ("if row.p:\n        return 1", "it must return a key on every path; end it with return"),
        ("return row.b", r"value 0 is a float, and a key is an integer or a text; write int\(...\)"),
        ("x = row.a / 2\n    return 1, x", r"value 1 is a float, and a key is an integer or a text; write int\(...\)"),
        ("if row.p:\n        return row.line\n    return 1",
         "value 0 is an integer in one return and a text in another; return one type"),
        ("if row.p:\n        return 1, 2\n    return 1", "all returns must have the same number of values"),
        ("return ()", "it returns an empty tuple; return an integer or a text"),
        ("return *row.items, 1", r"its number of values must be known; name each value instead of using \*"),
    )),
    ("app.source(Event).process",
     "app.source(Event).map",
     r"NAME.py:\d+: a stream has no method 'map' \(did you mean 'select' or 'flat_map'\?\); it has "
     "filter, select, lookup, flat_map, key_by, process, window, union and sink"),
    ("@app.generates",
     "@app.generates()", r"NAME.py:\d+: write @app.generates above the generator, without parentheses"),
    ("def operate(",
     "async def operate(", r"operator operate \(NAME.py:\d+\): an operator must be a plain def, not async def"),
    (".process(operate, State, Output)",
     ".flat_map(operate, Output, scratch=Huge)", "record Huge: scratch has at most 65536 bytes, got 65544"),
]  # fmt: skip
CASES = [(kind, *case, *["operate"] * (3 - len(case))) for kind, cases in REFUSED.items() for case in cases]
