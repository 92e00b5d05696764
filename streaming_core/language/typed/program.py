"""The functions of one application, all of them typed, and what they refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.language.operator import Operator
from streaming_core.language.record import Record
from streaming_core.language.source import named
from streaming_core.language.typed.bound import Bound
from streaming_core.language.typed.kinds import NONE, OUT, PLAN, POST, KeysKind, RowKind, WindowKind
from streaming_core.language.typed.reader import Reader
from streaming_core.language.typed.tree import Function
from streaming_core.language.window import Window

MOST_SCRATCH = 1 << 16  # bytes of a stateless operator's scratch: it lies on the stack
MOST_TABLES = 1 << 8  # an access of a plan names its table in 8 bits (runtime/ABI.md)


class Program(Bound):
    """The typed functions of one bound application. If it can be made, the application is valid.

    Raises:
        BadInput: A function breaks the rules of the language, or a size is out of bounds; the line says where and why.
    """

    def __init__(self, app: App, params: dict[str, Any]):
        super().__init__(app, params)
        self._functions: dict[tuple, Function | None] = {}
        if len(app.tables) > MOST_TABLES:
            raise BadInput(f"app {app.name}: at most {MOST_TABLES} tables, got {len(app.tables)}")
        for operator in app.operators:
            for record in (operator.output, operator.state):
                if record is not None:
                    self.records[record].state  # noqa: B018  sizes that are parameters
        _ = self.windows  # numbers that are parameters
        for operator in app.operators:
            for role in operator.functions:
                self.operator(operator, role)

    def operator(self, declared: Operator, role: str) -> Function:
        """The typed function of an operator: role map, process, flush, plan or post."""
        function = declared.functions[role]
        event = RowKind(self.records[declared.input], "event")
        output = declared.output
        if declared.window is not None:
            return self._windowed(declared, declared.window, role)
        match role:
            case "map":
                work = [self._scratch(declared.scratch)] if declared.scratch else []
                arguments: list[Any] = [event, *work, OUT]
            case "process":
                arguments = [event, RowKind(self.records[declared.kept], "state", True), OUT]
            case "flush":
                arguments = [RowKind(self.records[declared.kept], "state", True), OUT]
            case "plan":
                arguments, output = [event, PLAN], None
            case _:
                arguments = [event, POST, OUT]
        return self._nothing(function, arguments, output)

    def _windowed(self, declared: Operator, window: Window, role: str) -> Function:
        """The typed function of a windowed operator: role keys_i or update_i of stream i, result, or slide."""
        key = self.records[window.key]
        what, _, number = role.partition("_")
        arguments: list[Any] = []
        if number:
            arguments = [RowKind(self.records[declared.streams[int(number)]], "event")]
        if what == "keys":
            return self._nothing(declared.functions[role], [*arguments, KeysKind(key)], None)
        arguments += [WindowKind(RowKind(key, "key"))]
        arguments += [RowKind(self.records[state], "state", True) for state in window.states]
        if what == "slide":
            return self._nothing(declared.functions[role], arguments, None)
        return self._nothing(declared.functions[role], [*arguments, OUT], declared.output)

    def _nothing(self, function: Callable, arguments: list[Any], output: Record | None) -> Function:
        """The typed function of an operator, which returns nothing."""
        typed = self.function(function, arguments, output)
        if typed.kind not in (None, NONE):
            raise BadInput(f"{named(function)}: an operator returns nothing; emit rows with out.emit(...)")
        return typed

    def _scratch(self, record: Record) -> RowKind:
        resolved = self.records[record]
        if (size := resolved.state[1]) > MOST_SCRATCH:
            raise BadInput(f"record {resolved.name}: scratch has at most {MOST_SCRATCH} bytes, got {size}")
        return RowKind(resolved, "state", True)

    def function(self, function: Callable, arguments: Iterable[Any], output: Record | None = None) -> Function:
        """`function` at these argument types. `output`: the record that its `out.emit` makes."""
        arguments = tuple(arguments)
        key = (function, arguments, output)
        if key not in self._functions:
            self._functions[key] = None  # in progress: a second request for it is recursion
            self._functions[key] = Reader(self, function, arguments, output).read()
        typed = self._functions[key]
        if typed is None:
            raise BadInput(f"{named(function)}: operators do not support recursion; write a loop")
        return typed
