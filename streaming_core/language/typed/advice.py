"""What to write instead of what the language has not, in the words of who writes it."""

from __future__ import annotations

import ast
import builtins
from types import FunctionType, ModuleType, NoneType
from typing import Any

from streaming_core.language.application import App
from streaming_core.language.record import Counter, Map, Queue, Ring, Set, TopK

_LOOP = "a for loop over range(...)"
_NODES: dict[type[ast.AST], str] = {
    ast.JoinedStr: "f-strings make text, and operators only cut it: emit the values as fields",
    ast.ListComp: f"comprehensions: write {_LOOP}, and keep values in an Array or Ring of the state",
    ast.SetComp: f"comprehensions: write {_LOOP}, and keep values in a Set of the state",
    ast.DictComp: f"comprehensions: write {_LOOP}, and keep values in a Map of the state",
    ast.GeneratorExp: f"comprehensions: write {_LOOP}",
    ast.List: "lists: an Array or Ring of a record keeps several values",
    ast.Dict: "dicts: a Map or Counter of the state keeps values by key",
    ast.Set: "sets: a Set of the state keeps distinct values",
    ast.Tuple: "tuples: give each value a name of its own",
    ast.Starred: "tuples: give each value a name of its own",
    ast.Try: "try: ask before, with if; what fails is an error of the event",
    ast.Raise: "raise: out.drop() says that an event is invalid",
    ast.Assert: "assert: out.drop() says that an event is invalid, app.invariant what must hold of a result",
    ast.Import: "imports: an operator uses what stands in its file, and streaming_core.api",
    ast.ImportFrom: "imports: an operator uses what stands in its file, and streaming_core.api",
    ast.Lambda: "lambda: write a def beside the operator",
    ast.FunctionDef: "functions within functions: write it beside the operator, and hand it what it needs",
    ast.AsyncFunctionDef: "async: write a plain def beside the operator",
    ast.ClassDef: "classes: records are declared beside the operator, with @record",
    ast.Yield: "yield: out.emit(...) puts a row out",
    ast.YieldFrom: "yield: out.emit(...) puts a row out",
    ast.Delete: "del: assign 0; containers have clear()",
    ast.With: "with: an operator opens nothing",
    ast.Match: "match: write if and elif",
    ast.Global: "global variables: what lasts from event to event is a field of the state",
    ast.Nonlocal: "global variables: what lasts from event to event is a field of the state",
    ast.NamedExpr: "assignments within an expression: write it on a line of its own",
    ast.For: "for goes over range(...), without else: for i in range(len(...))",
    ast.While: "while has no else",
    ast.Pow: "powers: multiply",
    ast.MatMult: "@: multiply in a loop",
    ast.Is: "is: write ==; there is no None, a field always has a value",
    ast.IsNot: "is not: write !=; there is no None, a field always has a value",
    ast.Subscript: "steps in a slice: text[a:b] is all there is",
    ast.Assign: "several targets: one assignment at a time",
    ast.AnnAssign: "a variable without a value: begin with one",
    ast.Expr: "a value that nobody uses: return it, assign it, or leave it out",
}
_CALLS = {
    "print": "out.emit puts rows out; `streaming-core record` shows what an operator takes",
    "open": "an operator reads its events, and nothing else",
    "input": "an operator reads its events, and nothing else",
    **dict.fromkeys(("str", "repr", "format", "bytes"), "operators only cut text: emit the value as a field"),
    **dict.fromkeys(("sum", "any", "all", "sorted", "map", "filter", "zip", "enumerate"), f"write {_LOOP}"),
    **dict.fromkeys(("list", "tuple", "dict", "set"), "an Array, Ring, Map or Set of a record keeps several values"),
    "round": "int(x + 0.5) rounds what is not negative",
    "pow": "multiply",
    "range": "it stands in for loops only",
    "len": "it takes a text, an array, a container or a constant",
    "min": "it takes two numbers or more",
    "max": "it takes two numbers or more",
    **dict.fromkeys(("abs", "int", "float", "bool"), "it takes one number"),
}
_VALUES = {
    str: "text comes from events: compare its bytes, line[0] == 97, or give it a number where events are made",
    bytes: "text comes from events: compare its bytes, line[0] == 97, or give it a number where events are made",
    NoneType: "a field or variable always has a value: choose one, 0 or -1, that means none",
    list: "what lasts from event to event is a field of the state: an Array, Ring or Queue",
    dict: "what lasts from event to event is a field of the state: a Map or Counter",
    set: "what lasts from event to event is a field of the state: a Set",
    App: "a parameter is read as app.params.<name>",
    FunctionType: "call it",
}
_OWNED = "an operator calls functions of its own file, and len, min, max, abs, int, float, bool"
OUTSIDE = "what stands outside an operator is not changed by it; what lasts from event to event is a field of the state"
OF_TEXT = "it has len(text), text[i], text[a:b], find(byte, start), == and !="
# Of a container: how `x[i]` is read, and how `x[i] = v` is written.
_ITEMS = {
    Map: ("get(key, default), key_at(i) or value_at(i)", "put(key, value)"),
    Counter: ("get(key), key_at(i) or value_at(i)", "add(key, n)"),
    Set: ("x in s, or at(i)", "add(x)"),
    TopK: ("key_at(i) or score_at(i)", "offer(key, score)"),
    Ring: ("ring[i]", "append(x)"),
    Queue: ("queue[i].field", "append(field=value, ...)"),
}


def of_node(node: ast.AST) -> str:
    """What stands in the source, by its plain word, and what to write instead; empty if there is nothing to say."""
    parts: list[ast.AST] = [node]
    match node:
        case ast.BinOp(op=op):
            parts = [op]
        case ast.Compare(ops=ops):
            parts = [*ops]
        case ast.Expr(value=value):
            parts = [value, node]
    return next((f": {_NODES[type(part)]}" for part in parts if type(part) in _NODES), "")


def of_value(value: Any) -> str:
    """Why a Python value is none of an operator's, and what is."""
    if isinstance(value, ModuleType):
        return f": {_OWNED}"
    return f": {_VALUES[type(value)]}" if type(value) in _VALUES else ""


def of_name(name: str, params: dict[str, Any]) -> str:
    """What a name may have been meant for, or what names there are."""
    if name in params:
        return f": a parameter is read as app.params.{name}"
    return ": an operator knows its arguments and variables, and numbers, constants, tables and functions of its file"


def of_call(name: str) -> str:
    """What to do where a function of Python's is no function of operators'."""
    return f": {_CALLS[name]}" if name in _CALLS else f": {_OWNED}"


def is_pythons(name: str) -> bool:
    """Whether Python has a function of that name which no operator has."""
    known = {"len", "min", "max", "abs", "int", "float", "bool", "range"}
    return name not in known and callable(getattr(builtins, name, None))


def read_by(kind: type) -> str:
    """How an entry of a container is read."""
    return _ITEMS[kind][0]


def changed_by(kind: type) -> str:
    """How an entry of a container is written."""
    return _ITEMS[kind][1]


def of_methods(kind: Any, methods: dict[type, dict[str, tuple[str, str]]]) -> str:
    """What can be asked of a value of this kind."""
    if str(kind) == "an output":
        return ": out.emit(field=value, ...) puts a row out, out.drop() none, each on a line of its own"
    if str(kind) == "a text":
        return f": {OF_TEXT}"
    known = methods.get(type(getattr(kind, "type", None)), {})
    called = [f"{name}({', '.join(_ARGUMENTS[one] for one in takes)})" for name, (takes, _) in known.items()]
    return f": it has {', '.join(called)}" if called else ""


_ARGUMENTS = {"i": "integer", "v": "value", "r": "field=value, ..."}
