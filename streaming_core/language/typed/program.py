"""The functions of one application, typed where somebody asks for them, and what they refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language.application import App, Operator
from streaming_core.language.record import Record
from streaming_core.language.typed.bound import Bound
from streaming_core.language.typed.kinds import NONE, OUT, PLAN, POST, RowKind
from streaming_core.language.typed.reader import Reader
from streaming_core.language.typed.tree import Function


class Program(Bound):
    """The functions of one bound application, typed on demand.

    Raises:
        BadInput: (from any method) the function is not part of the language; the line says where and why.
    """

    def __init__(self, app: App, params: dict[str, Any]):
        super().__init__(app, params)
        self._functions: dict[tuple, Function | None] = {}

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
                arguments = [event, RowKind(self.resolved(declared.kept), "state", True), OUT]
            case "flush":
                arguments = [RowKind(self.resolved(declared.kept), "state", True), OUT]
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
