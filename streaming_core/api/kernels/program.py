"""A bound application, compiled: kernels and the description the runtime works from."""

from __future__ import annotations

import json
import time
from typing import Any

from numba.core.errors import NumbaError

from streaming_core.api.app import App, Operator
from streaming_core.api.dialect import Translator
from streaming_core.api.kernels import shapes
from streaming_core.api.kernels.transaction import Bound
from streaming_core.api.kernels.words import WORDS
from streaming_core.api.record import Resolved, Scalar, Text
from streaming_core.errors import BadInput


class Program:
    """What the runtime needs to run an application. Keeps the kernels' addresses alive.

    Attributes:
        description: the program of runtime/README.md, as a dict.
        compile_seconds: time spent compiling, reported apart from running.
        event, output: resolved records; tables: (table, resolved row, number of rows); states: (operator, resolved).
    """

    def __init__(self, app: App, params: dict[str, Any]):
        started = time.perf_counter()
        self.app, self.params = app, params
        self.event = app.event.resolve(params)
        self.output = app.outputs.resolve(params)
        self.tables = [(t, t.row.resolve(params), table_size(app, t, params)) for t in app.tables]
        self.states: list[tuple[Operator, Resolved]] = []
        self._kernels: list[shapes.Kernel] = []
        self._translator = Translator(app, params, WORDS, shapes.compiled)
        if app.kind == "transaction":
            self.description = self._transaction()
        else:
            self.description = self._dataflow()
        self.description["columns"] = columns(self.output, header=True)
        self.compile_seconds = time.perf_counter() - started

    def json(self) -> str:
        """The description as the runtime takes it."""
        return json.dumps(self.description)

    def _address(self, operator: Operator, build, *args) -> int:
        try:
            kernel = build(*args)
        except NumbaError as error:
            raise BadInput(f"operator {operator.name} does not compile: {compile_error(error)}") from None
        self._kernels.append(kernel)
        return kernel.address

    def _translate(self, operator: Operator, role: str):
        return self._translator.translate(operator.functions[role], operator.output)

    def _dataflow(self) -> dict:
        operators = []
        previous = self.app.operators[0]
        for operator in self.app.operators[1:-1]:
            if operator.kind == "windowed":
                raise BadInput(f"operator {operator.name}: windowed operators run on no executor yet")
            if operator.inputs != [previous]:
                raise BadInput(f"operator {operator.name}: executors run chains of operators for now, not DAGs")
            previous = operator
            event, output = operator.input.resolve(self.params), operator.output.resolve(self.params)
            entry: dict[str, Any] = {"kind": operator.kind, "name": operator.name, "stride": output.event[1]}
            if operator.kind == "stateless":
                function = self._translate(operator, "map")
                entry["kernel"] = self._address(operator, shapes.map_kernel, function, event, output)
            else:
                state = operator.state.resolve(self.params)
                self.states.append((operator, state))
                function = self._translate(operator, "process")
                entry["kernel"] = self._address(operator, shapes.process_kernel, function, event, state, output)
                entry["state_size"] = state.state[1]
                entry["flush"] = 0
                if "flush" in operator.functions:
                    function = self._translate(operator, "flush")
                    entry["flush"] = self._address(operator, shapes.flush_kernel, function, state, output)
                if operator.kind == "partitioned":
                    slot = event.event[0][operator.key]
                    entry["key"] = {"kind": slot.type.name, "offset": slot.offset}
            operators.append(entry)
        return {"kind": "dataflow", "event": {"stride": self.event.event[1]}, "operators": operators}

    def _transaction(self) -> dict:
        operator = self.app.operators[1]
        bound = Bound([row for _, row, _ in self.tables], [size for _, _, size in self.tables])
        plan = self._address(operator, shapes.plan_kernel, self._translate(operator, "plan"), self.event, bound)
        translator = self._translator
        modifications = [translator.translate(f) for f in translator.modifications]
        conditions = [translator.translate(f) for f in translator.conditions]
        apply = self._address(operator, shapes.apply_kernel, bound, self.event, modifications, conditions)
        post = self._address(
            operator, shapes.post_kernel, self._translate(operator, "post"), self.event, bound, self.output
        )
        return {
            "kind": "transaction",
            "event": {"stride": self.event.event[1]},
            "tables": [
                {"name": t.name, "rows": size, "stride": row.state[1], "containers": row.has_containers}
                for t, row, size in self.tables
            ],
            "transaction": {
                "name": operator.name,
                "plan": plan,
                "apply": apply,
                "post": post,
                "stride": self.output.event[1],
                "result_stride": bound.result_stride,
            },
        }


def columns(record: Resolved, header: bool) -> list[dict]:
    """The columns of a row as the runtime's digest reads them."""
    found = []
    for slot in (record.event if header else record.state)[0].values():
        kind = slot.type if isinstance(slot.type, Scalar | Text) else slot.type.item
        found.append({"kind": kind.name, "offset": slot.offset, "count": slot.count})
    return found


def table_size(app: App, table, params: dict[str, Any]) -> int:
    """Rows of a table under these parameters."""
    size = params[table.size] if isinstance(table.size, str) else table.size
    if not isinstance(size, int) or not 1 <= size < 1 << 32:
        raise BadInput(f"app {app.name}: table {table.name} has size {size!r}; it must lie in 1..{(1 << 32) - 1}")
    return size


def compile_error(error: NumbaError) -> str:
    """The line that says what is wrong, and where in the application it is, out of numba's long message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    where = next((line for line in lines if line.startswith("File ")), "")
    skip = ("Failed in", "During:", "File ", "There are", "- Of which", "Overload", "*", "-", "def ", "<source")
    what = [line for line in lines if not line.startswith(skip)]
    raised = [line.split("raised:", 1)[1].strip() for line in lines if "raised:" in line]
    text = next((line for line in raised if line), what[0] if what else "unknown error")
    return f"{text} [{where.rstrip(':')}]" if where else text


def compile_app(app: App, params: dict[str, Any]) -> Program:
    """Compiles a bound application.

    Raises:
        BadInput: an operator does not keep to the language or does not compile; the line names it.
    """
    app.check()
    return Program(app, params)
