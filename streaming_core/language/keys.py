"""Keys of a stream: fields of its rows, or the values that a function returns for a row.

    clicks.key_by("user", "page")

    def campaign(row):
        return row.ad // 10, row.kind

    clicks.key_by(campaign)

A function becomes a stateless operator, which passes rows on with the values as new fields: `key`, or `key_0` and
`key_1` for several. So the rest of the language knows only keys that are fields. The function is rewritten line by
line: `return` becomes `out.emit`. Messages about it cite the lines that the user wrote.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Callable, Iterable

from streaming_core.errors import BadInput
from streaming_core.language import generated
from streaming_core.language.operator import key_columns
from streaming_core.language.record import FieldType, Record, Scalar, Text, f64, i64, text

# Methods of a text, and functions, whose result is a number.
_NUMBERS = ("find", "startswith", "endswith", "len", "int", "bool")


def is_key(kind: FieldType | None) -> bool:
    """Whether a field of this type can be a key, or part of one."""
    return isinstance(kind, Text) or (isinstance(kind, Scalar) and not kind.is_float)


def check_fields(record: Record, fields: tuple[str, ...]) -> None:
    """Raise BadInput unless these are different fields of a record, all integers and texts."""
    called = f"key_by({', '.join(map(repr, fields))})"
    if not fields:
        raise BadInput('key_by() needs a key: key_by("user"), key_by("user", "page") or key_by(function)')
    for field in fields:
        if not is_key(record.fields.get(field)):
            keys = ", ".join(name for name, kind in record.fields.items() if is_key(kind))
            raise BadInput(f"{called}: {field!r} is no key; {record.name} has the integer and text fields {keys}")
    if len({*fields}) < len(fields):
        raise BadInput(f"{called}: a field is there twice; name each field once")


def with_key(function: Callable, record: Record, name: str) -> tuple[Callable, Record, tuple[str, ...]]:
    """Return the stateless operator that adds the key to a row.

    Args:
        function: `function(row)` returns an integer or a text, or a tuple of these.
        record: The record of the rows.
        name: The name of the operator.

    Returns:
        The function of the operator, the record of its rows, and the fields of the key.

    Raises:
        BadInput: The function returns no key on some path, or a float.
    """
    key = _KeyFunction(function, record)
    kinds = key.kinds()
    fields = tuple(key_columns(len(kinds)))
    if clash := sorted({*fields} & record.fields.keys()):
        raise key.refusal(f"{record.name} has a field {clash[0]} already; rename the field with flat_map")
    output = Record(name, {**record.fields, **dict(zip(fields, kinds, strict=True))}, None)
    return key.rewritten(name, fields), output, fields


class _KeyFunction:
    """The source of a function that computes a key."""

    def __init__(self, function: Callable, record: Record):
        self._function, self._record = function, record
        try:
            lines, self._first = inspect.getsourcelines(function)
            self._source = textwrap.dedent("".join(lines))
            [definition] = ast.parse(self._source).body
        except (OSError, SyntaxError, ValueError):
            raise self.refusal("its source cannot be read; write it with def in a file") from None
        if not isinstance(definition, ast.FunctionDef) or len(definition.args.args) != 1:
            raise self.refusal("write it as a plain def with one argument, the row")
        self._definition = definition
        self._row = definition.args.args[0].arg
        self._returns = [node for node in ast.walk(definition) if isinstance(node, ast.Return)]
        if not _ends(definition.body) or any(node.value is None for node in self._returns):
            raise self.refusal("it must return a key on every path; end it with return")
        if any(isinstance(value, ast.Starred) for node in self._returns for value in _values(node)):
            raise self.refusal("its number of values must be known; name each value instead of using *")

    def refusal(self, why: str) -> BadInput:
        """The error that names the function and its place."""
        code = self._function.__code__
        place = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
        return BadInput(f"key_by: function {self._function.__name__} ({place}): {why}")

    def kinds(self) -> list[FieldType]:
        """Return the types of the values: `i64` or `text`."""
        kinds = _Kinds((self._function,), self._definition, {self._row: self._record})
        returned = [[kinds.of(value) for value in _values(node)] for node in self._returns]
        if any(len(values) != len(returned[0]) for values in returned):
            raise self.refusal("all returns must have the same number of values")
        for number, values in enumerate(zip(*returned, strict=True)):
            if f64 in values:
                raise self.refusal(f"value {number} is a float, and a key is an integer or a text; write int(...)")
            if len({*values}) > 1:
                raise self.refusal(f"value {number} is an integer in one return and a text in another; return one type")
        if not returned[0]:
            raise self.refusal("it returns an empty tuple; return an integer or a text")
        return returned[0]

    def rewritten(self, name: str, fields: tuple[str, ...]) -> Callable:
        """Return the operator `name(row, out)`, whose lines are those of the function."""
        lines = self._source.encode().splitlines(keepends=True)
        begins = [sum(map(len, lines[:number])) for number in range(len(lines))]
        source = b"".join(lines)

        def span(node: ast.expr | ast.Return) -> slice:
            end = node.end_lineno or node.lineno
            return slice(begins[node.lineno - 1] + node.col_offset, begins[end - 1] + (node.end_col_offset or 0))

        out, code = "out", self._function.__code__
        while out in (*code.co_varnames, *code.co_names, *code.co_freevars):
            out += "_"
        row = [f"{field}={self._row}.{field}".encode() for field in self._record.fields]
        changed = source
        for node in sorted(self._returns, key=lambda node: (node.lineno, node.col_offset), reverse=True):
            values = [b"(%s)" % source[span(value)] for value in _values(node)]
            pairs = [b"%s=%s" % (field.encode(), value) for field, value in zip(fields, values, strict=True)]
            emit, old = b"%s.emit(%s" % (out.encode(), b", ".join([*row, *pairs])), span(node)
            padding = b"\n" * (source[old].count(b"\n") - emit.count(b"\n"))
            changed = changed[: old.start] + emit + padding + b"); return" + changed[old.stop :]
        head, body = self._definition, self._definition.body[0]
        lead = body.lineno - head.lineno  # the lines of the head, as one and empty ones
        begin = begins[body.lineno - 1] + (0 if lead else body.col_offset)
        source_of_operator = f"def {name}({self._row}, {out}): " + "\n" * lead + changed[begin:].decode()
        return generated.like(self._function, source_of_operator, self._first - 1 + head.lineno)


class _Kinds:
    """The types of a function's values, as far as a key needs them: `i64`, `f64` or `text`.

    The reader of the language checks them later (language/typed). This only declares the fields.
    """

    def __init__(self, functions: tuple[Callable, ...], definition: ast.FunctionDef, known: dict[str, object]):
        self._functions, self._known = functions, dict(known)  # the last function is this one, the others call it
        cells = inspect.getclosurevars(functions[-1])
        self._names = {**cells.globals, **cells.nonlocals}
        assigned: list[tuple[str, ast.expr]] = []
        for node in ast.walk(definition):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    assigned.append((name, value))
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    assigned.append((name, value))
                case ast.AugAssign(target=ast.Name(id=name), value=value):
                    assigned.append((name, value))
        for _ in assigned:  # a value may follow from all other variables
            for name, value in assigned:
                if name not in known:
                    self._known[name] = _joined([self._known.get(name, i64), self.of(value)])

    def of(self, node: ast.expr) -> FieldType:
        """The type of an expression."""
        match node:
            case ast.Constant(value=value):
                return text if isinstance(value, bytes | str) else f64 if isinstance(value, float) else i64
            case ast.Name(id=name):
                kind = self._known.get(name, i64)
                return kind if isinstance(kind, Text | Scalar) else i64
            case ast.Attribute(value=ast.Name(id=name), attr=field):
                record = self._known.get(name)
                kind = record.fields.get(field) if isinstance(record, Record) else None
                return text if isinstance(kind, Text) else f64 if isinstance(kind, Scalar) and kind.is_float else i64
            case ast.Subscript(value=value, slice=ast.Slice()):
                return self.of(value)
            case ast.IfExp(body=body, orelse=other):
                return _joined([self.of(body), self.of(other)])
            case ast.BinOp(op=ast.Div()):
                return f64
            case ast.BinOp(left=left, right=right):
                return _joined([self.of(left), self.of(right)])
            case ast.UnaryOp(operand=operand) if not isinstance(node.op, ast.Not):
                return self.of(operand)
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method not in _NUMBERS:
                return self.of(value)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._called(name, arguments)
        return i64

    def _called(self, name: str, arguments: list[ast.expr]) -> FieldType:
        function = self._names.get(name)
        if not inspect.isfunction(function):
            return i64 if name in _NUMBERS else f64 if name == "float" else _joined(map(self.of, arguments))
        try:
            [definition] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        except (OSError, SyntaxError, ValueError):
            return i64
        if not isinstance(definition, ast.FunctionDef) or function in self._functions:
            return i64
        known: dict[str, object] = {}
        for parameter, argument in zip(definition.args.args, arguments, strict=False):
            row = self._known.get(argument.id) if isinstance(argument, ast.Name) else None
            known[parameter.arg] = row if isinstance(row, Record) else self.of(argument)
        inner = _Kinds((*self._functions, function), definition, known)
        returns = (node.value for node in ast.walk(definition) if isinstance(node, ast.Return))
        return _joined(inner.of(value) for value in returns if value)


def _joined(kinds: Iterable[object]) -> FieldType:
    """The type of a value that has one of these types."""
    known = [*kinds]
    return next((kind for kind in (text, f64) if kind in known), i64)


def _values(node: ast.Return) -> list[ast.expr]:
    """The values of a key that a return has."""
    assert node.value is not None  # _KeyFunction
    return node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]


def _ends(body: list[ast.stmt]) -> bool:
    """Whether every path through these statements ends with a return."""
    match body[-1]:
        case ast.Return():
            return True
        case ast.If(body=then, orelse=otherwise):
            return bool(otherwise) and _ends(then) and _ends(otherwise)
    return False
