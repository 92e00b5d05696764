"""The functions of one application, typed where somebody asks for them, and what they refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from streaming_core.errors import BadInput
from streaming_core.language import tables
from streaming_core.language.application import App, Constant, Operator
from streaming_core.language.record import Record, Resolved
from streaming_core.oracle.typed.kinds import NONE, OUT, PLAN, POST, RowKind
from streaming_core.oracle.typed.reader import Reader
from streaming_core.oracle.typed.tree import Function


class Program:
    """The functions of one bound application, typed on demand.

    Args:
        app: the application.
        params: its bound parameters.

    Raises:
        BadInput: (from any method) the function is not part of the language; the line says where and why.
    """

    def __init__(self, app: App, params: dict[str, Any]):
        self.app, self.params = app, params
        self._resolved: dict[Record, Resolved] = {}
        self._constants: dict[Constant, np.ndarray] = {}
        self._functions: dict[tuple, Function | None] = {}

    def resolved(self, declaration: Record) -> Resolved:
        """The record with its sizes; one object per record."""
        if declaration not in self._resolved:
            self._resolved[declaration] = declaration.resolve(self.params)
        return self._resolved[declaration]

    def constant(self, constant: Constant) -> np.ndarray:
        """A side table's values (int64 or float64)."""
        if constant not in self._constants:
            self._constants[constant] = tables.constant(self.app, constant, self.params)
        return self._constants[constant]

    def roles(self) -> list[Callable]:
        """The functions that are declared to be an operator's."""
        return [function for operator in self.app.operators for function in operator.functions.values()]

    def operator(self, declared: Operator, role: str) -> Function:
        """The typed function of an operator: role map, process, flush, plan or post."""
        function = declared.functions[role]
        event = RowKind(self.resolved(declared.input), "event")
        output = declared.output
        match role:
            case "map":
                work = [RowKind(self.resolved(declared.scratch), "state", True)] if declared.scratch else []
                arguments: list[Any] = [event, *work, OUT]
            case "process":
                arguments = [event, RowKind(self.resolved(declared.state), "state", True), OUT]
            case "flush":
                arguments = [RowKind(self.resolved(declared.state), "state", True), OUT]
            case "plan":
                arguments, output = [event, PLAN], None
            case "post":
                arguments = [event, POST, OUT]
            case _:
                raise BadInput(f"operator {declared.name}: {role} is not supported")
        found = self.function(function, arguments, output)
        if found.kind not in (None, NONE):
            raise BadInput(f"operator {declared.name} ({found.file}:{found.line}): an operator returns nothing")
        return found

    def function(self, function: Callable, arguments: Iterable[Any], output: Record | None = None) -> Function:
        """`function` at these argument types. `output`: the record that its `out.emit` makes."""
        arguments = tuple(arguments)
        key = (function, arguments, output)
        if key not in self._functions:
            self._functions[key] = None  # under way: meeting it again is recursion
            self._functions[key] = Reader(self, function, arguments, output).read()
        found = self._functions[key]
        if found is None:
            raise BadInput(f"operator {function.__name__}: recursion is not supported")
        return found
