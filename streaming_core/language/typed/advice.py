"""What to write instead of code that operators do not support."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from types import FunctionType, ModuleType, NoneType
from typing import Any

from streaming_core.errors import did_you_mean
from streaming_core.language.application import App
from streaming_core.language.record import Counter, Map, Queue, Ring, Set, TopK

_LOOP = "write a for loop over range(...)"
_TOP = "at the top level of the file"
_KEEP = "keep values from event to event in"
_STATE = f"{_KEEP} a field of the state"
_OWN = "an operator can use only what its own file defines, and streaming_core.api"
# What follows "operators do not support": what the source is, and what to write instead.
_NODES: dict[type[ast.AST], str] = {
    ast.JoinedStr: 'f-strings; write a + ":" + str(number)',
    ast.ListComp: f"comprehensions; {_LOOP} and keep the values in an Array or Ring of the state",
    ast.SetComp: f"comprehensions; {_LOOP} and keep the values in a Set of the state",
    ast.DictComp: f"comprehensions; {_LOOP} and keep the values in a Map of the state",
    ast.GeneratorExp: f"generator expressions; {_LOOP}",
    ast.List: "lists; keep several values in an Array or Ring of a record",
    ast.Dict: "dicts; keep values by key in a Map or Counter of the state",
    ast.Set: "sets; keep distinct values in a Set of the state",
    ast.Tuple: "tuples; give each value a name of its own",
    ast.Starred: "unpacking with *; give each value a name of its own",
    ast.Try: "`try`; check with if before the operation, because an operation that fails ends the run",
    ast.Raise: "`raise`; call out.drop() to discard an invalid event",
    ast.Assert: "`assert`; call out.drop() to discard an invalid event, or check results with app.invariant",
    ast.Import: f"imports; {_OWN}",
    ast.ImportFrom: f"imports; {_OWN}",
    ast.Lambda: f"`lambda`; write a def {_TOP}",
    ast.FunctionDef: f"nested functions; write the def {_TOP} and pass it the values that it needs",
    ast.AsyncFunctionDef: f"`async`; write a plain def {_TOP}",
    ast.ClassDef: f"classes; declare a record with @record {_TOP}",
    ast.Yield: "`yield`; call out.emit(...) to emit a row",
    ast.YieldFrom: "`yield`; call out.emit(...) to emit a row",
    ast.Delete: "`del`; assign 0, or call clear() on a container",
    ast.With: "`with`; remove it, because an operator opens nothing",
    ast.Match: "`match`; write if and elif",
    ast.Global: f"global variables; {_STATE}",
    ast.Nonlocal: f"global variables; {_STATE}",
    ast.NamedExpr: "assignments within an expression; assign on a separate line",
    ast.For: "for loops with else or over anything but range(...), queues and text.split(...); write for i in "
    "range(len(...))",
    ast.While: "while loops with else; move the else branch after the loop",
    ast.Pow: "`**`; multiply instead",
    ast.MatMult: "`@`; multiply in a loop",
    ast.Is: "`is` but for `field is None`; write ==",
    ast.IsNot: "`is not` but for `field is not None`; write !=",
    ast.Slice: "slices with a step; write text[a:b]",
    ast.Assign: "chained assignments; assign to one target per line",
    ast.AnnAssign: "variables without a value; assign one, such as 0",
}
_TEXT = "concatenate texts with +, and write str(number) for decimal digits"
_SEVERAL = "keep several values in an Array, Ring, Map or Set of a record"
_CALLS = {
    "print": "emit rows with out.emit(...), or inspect an operator's input with `streaming-core record`",
    **dict.fromkeys(("open", "input"), "an operator reads only its events"),
    **dict.fromkeys(("repr", "format", "bytes"), _TEXT),
    **dict.fromkeys(("sum", "any", "all", "sorted", "map", "filter", "zip", "enumerate"), _LOOP),
    **dict.fromkeys(("list", "tuple", "dict", "set"), _SEVERAL),
    "round": "int(x + 0.5) rounds numbers that are not negative",
    "pow": "multiply instead",
}
# The functions of Python that operators have.
_ARGUMENTS = {
    "range": "works only in a for loop: for i in range(...)",
    "len": "takes a text, an array, a container or a constant",
    **dict.fromkeys(("min", "max"), "takes two or more numbers"),
    **dict.fromkeys(("abs", "bool"), "takes one number"),
    **dict.fromkeys(("int", "float"), "takes one number or text"),
    "str": "takes one integer",
}
_VALUES = {
    NoneType: "only a field declared with `| None` can be null, and a variable cannot hold one",
    list: f"{_KEEP} an Array, Ring or Queue of the state",
    dict: f"{_KEEP} a Map or Counter of the state",
    set: f"{_KEEP} a Set of the state",
    App: "read a parameter as app.params.<name>",
    FunctionType: "call the function",
}
_FUNCTIONS = "an operator can call functions of its own file, and len, min, max, abs, int, float, bool and str"
OUTSIDE = f"an operator cannot change a variable of the file, so {_STATE}"
OF_TEXT = (
    "use len, text[i], text[a:b], +, in, find, startswith, endswith, strip, lower, upper, int, float, comparisons, or "
    "for part in text.split(...)"
)
OF_OUTPUT = "call out.emit(field=value, ...) or out.drop() on a separate line"
# Of a container: how to read an entry, and how to write one.
_ITEMS = {
    Map: ("get(key, default), key_at(i) or value_at(i)", "put(key, value)"),
    Counter: ("get(key), key_at(i) or value_at(i)", "add(key, n)"),
    Set: ("`x in s` or at(i)", "add(x)"),
    TopK: ("key_at(i) or score_at(i)", "offer(key, score)"),
    Ring: ("ring[i]", "append(x)"),
    Queue: ("queue[i].field", "append(field=value, ...)"),
}
# Of a transaction: how to call its methods.
_ACCESSES = {
    "row": "row = txn.row(table, key)",
    "require": "txn.require(condition, row, ...)",
    "modify": "txn.modify(row, function, ...)",
    "read": "txn.read(row)",
    "drop": "txn.drop()",
}


def of_node(node: ast.AST) -> str:
    """Why operators do not support a piece of source, and what to write instead."""
    parts: list[ast.AST] = [node]
    match node:
        case ast.BinOp(op=op):
            parts = [op]
        case ast.Compare(ops=ops):
            parts = [*ops]
        case ast.Expr(value=value):
            parts = [value]
        case ast.Subscript(slice=part):
            parts = [part]
    if known := next((_NODES[type(part)] for part in parts if type(part) in _NODES), None):
        return f"operators do not support {known}"
    if isinstance(node, ast.Expr):
        return "the code does not use this value; return it, assign it, or delete the line"
    return "operators do not support this"


def of_value(value: Any) -> str:
    """What to write instead of a Python value; empty, or a clause after a semicolon."""
    if isinstance(value, ModuleType):
        return f"; {_FUNCTIONS}"
    return f"; {_VALUES[type(value)]}" if type(value) in _VALUES else ""


def of_name(name: str, params: Iterable[str], known: Iterable[str]) -> str:
    """What to write instead of an unknown name: the nearest of those `known`, or a list of what can have a name."""
    if name in params:
        return f"; read the parameter as app.params.{name}"
    usable = "its arguments and variables, and the numbers, constants, tables and functions of its file"
    return f"{did_you_mean(name, known)}; an operator can use {usable}"


def of_call(name: str, known: Iterable[str] = ()) -> str:
    """What to write instead of a call of a function that operators do not have."""
    if name in ("emit", "drop"):
        return f"; {OF_OUTPUT}"
    return f"{did_you_mean(name, known)}; {_CALLS.get(name, _FUNCTIONS)}"


def of_arguments(name: str) -> str:
    """What one of the functions of Python that operators have takes; empty for any other name."""
    return _ARGUMENTS.get(name, "")


def is_pythons(name: str) -> bool:
    """Whether Python has a function of that name that operators do not have."""
    return name not in _ARGUMENTS and callable(getattr(builtins, name, None))


def of_access(name: str) -> str:
    """How to call a method of a transaction; what methods there are, for an unknown one."""
    if name in _ACCESSES:
        return f"wrong call of txn.{name}; write {_ACCESSES[name]}"
    return f"a transaction has no method {name!r}{did_you_mean(name, _ACCESSES)}; it has {', '.join(_ACCESSES)}"


def read_by(kind: type) -> str:
    """How to read an entry of a container."""
    return _ITEMS[kind][0]


def changed_by(kind: type) -> str:
    """How to write an entry of a container."""
    return _ITEMS[kind][1]


def of_methods(kind: Any, methods: dict[type, dict[str, tuple[str, str]]]) -> str:
    """The methods of a value of this kind; empty, or a clause after a semicolon."""
    if str(kind) in _METHODS:
        return f"; {_METHODS[str(kind)]}"
    known = methods.get(type(getattr(kind, "type", None)), {})
    calls = [
        f"{name}({', '.join(_PARAMETERS[parameter] for parameter in takes)})" for name, (takes, _) in known.items()
    ]
    return f"; it has {', '.join(calls)}" if calls else ""


# By name of the kind, the methods of a value that is not a container.
_METHODS = {
    "an output": OF_OUTPUT,
    "a text": OF_TEXT,
    "keys": "call keys.add(field=value, ...)",
    "the outcome of a transaction": "it has accepted and result(table, i)",
}
_PARAMETERS = {"i": "integer", "k": "key", "v": "value", "r": "field=value, ..."}
