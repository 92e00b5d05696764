"""Steps: operators at work. Each turns its input into rows, one by one, and has the state of its operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming_core.language.application import Table
from streaming_core.language.operator import Operator
from streaming_core.language.record import NAN, Text
from streaming_core.language.typed import Program
from streaming_core.oracle.interpreter import arithmetic, branches
from streaming_core.oracle.interpreter.rows import copier, export, row_class, zero


@dataclass
class Shared:
    """The common data of an application's operators: the typed program, the tables' rows, and counts."""

    program: Program
    tables: dict[Table, list | dict]
    dropped_invalid: int = 0
    rejected: int = 0
    dropped_late: int = 0


class Step:
    """An operator at work: `take(row)` appends the outputs of one input to `rows`."""

    take: Callable[[Any], None]

    def __init__(self, shared: Shared, operator: Operator, is_last: bool):
        self.shared, self.operator, self.is_last = shared, operator, is_last
        self.rows: list = []
        output = shared.program.records[operator.emitted]
        # Outputs for the sink alone are plain tuples; those that an operator reads are rows with their seq.
        self.seq = [0]
        make: Any = row_class(output, header=True)
        self.namespace: dict[str, Any] = {
            "_append": self.rows.append, "_Out": make, "_seq": self.seq, "_count_dropped": self._count_dropped,
            "_wrap": arithmetic.wrap, "_shift_left": arithmetic.shift_left, "_shift_right": arithmetic.shift_right,
            "_truncate": arithmetic.truncate, "_narrow": arithmetic.narrow, "_item": arithmetic.item,
            "_find": arithmetic.text_find, "_integer_of": arithmetic.integer_of, "_float_of": arithmetic.float_of,
            "_negative": arithmetic.negative,
            "_null": arithmetic.null,
            "_set_item": arithmetic.set_item, "_nan": NAN, "_inf": math.inf, "_float": float, "_bool": bool,
            "len": len, "min": min, "max": max, "abs": abs, "range": range,
        }  # fmt: skip
        self.printer = branches.source(shared.program, self.namespace, is_last)

    def compiled(self, role: str) -> Callable:
        """Return the operator's function of this role."""
        return self.printer.make(self.shared.program.operator(self.operator, role))

    def places(self) -> list[tuple[str, int, str]]:
        """Return file, first line and code name of the operator's functions, in order of lines."""
        functions = (self.shared.program.operator(self.operator, role) for role in self.operator.functions)
        names = self.printer.names
        return sorted({(function.file, function.line, names[function]) for function in functions if function in names})

    def taker(self, position: int) -> Callable[[Any], None]:
        """Return the function that takes the rows of one of the operator's inputs."""
        return self.take

    def set_seq(self, seq: int) -> None:
        """Set the seq of the outputs of a flush."""
        self.seq[0] = seq

    def flush(self) -> None:
        """Emit the rows of the end of the stream."""

    def state(self) -> dict[str, pa.Table]:
        """Return final states, by the operator's name."""
        return {}

    def snapshot(self) -> Any:
        """Return all that outlasts an event, for `restore`."""

    def restore(self, snapshot: Any) -> None:
        """Take over what `snapshot` of an equal step returned."""

    def _count_dropped(self) -> None:
        self.shared.dropped_invalid += 1


class Stateless(Step):
    """A stateless operator, perhaps with scratch memory."""

    def __init__(self, shared: Shared, operator: Operator, is_last: bool):
        super().__init__(shared, operator, is_last)
        function, seq = self.compiled("map"), self.seq
        new = zero(shared.program.records[operator.scratch]) if operator.scratch else None

        def take(row: Any) -> None:
            seq[0] = row.seq
            if new is None:
                function(row, None)
            else:
                function(row, new(), None)

        self.take = take


class Stateful(Step):
    """An operator with one state, or with a state for each key."""

    def __init__(self, shared: Shared, operator: Operator, is_last: bool):
        super().__init__(shared, operator, is_last)
        self.resolved = shared.program.records[operator.kept]
        self.new, function, seq = zero(self.resolved), self.compiled("process"), self.seq
        self.flush_one = self.compiled("flush") if "flush" in operator.functions else None
        self.states: dict[Any, Any] = {}
        states = self.states
        if not operator.key:
            states[None] = self.new()

            def take(row: Any) -> None:
                seq[0] = row.seq
                function(row, states[None], None)
        else:
            new = self.new
            fields = [f"row.{field}" for field in operator.key]
            key = fields[0] if len(fields) == 1 else f"({', '.join(fields)})"
            namespace: dict[str, Any] = {"states": states, "new": new, "seq": seq, "function": function}
            exec(_TAKE.format(key=key), namespace)
            take = namespace["take"]
        self.take = take

    def flush(self) -> None:
        """Flush every state, keys ascending."""
        if self.flush_one is not None:
            for key in sorted(self.states) if self.operator.key else [None]:
                self.flush_one(self.states[key], None)

    def state(self) -> dict[str, pa.Table]:
        """Return the final states, ascending by key."""
        operator, keys = self.operator, sorted(self.states) if self.operator.key else [None]
        slots, columns = self.shared.program.records[operator.input].event[0], {}
        for number, (name, field) in enumerate(zip(operator.key_columns, operator.key, strict=True)):
            values = [key[number] if len(operator.key) > 1 else key for key in keys]
            is_text = isinstance(slots[field].type, Text)
            columns[name] = pa.array(values, pa.binary()) if is_text else pa.array(map(int, values), pa.int64())
        return {operator.name: export(self.resolved, [self.states[key] for key in keys], columns)}

    def snapshot(self) -> Any:
        """Return the states by key."""
        return self.states

    def restore(self, snapshot: Any) -> None:
        """Take over states by key."""
        self.states.clear()
        self.states.update(snapshot)


_TAKE = """
def take(row):
    key = {key}
    state = states.get(key)
    if state is None:
        state = states[key] = new()
    seq[0] = row.seq
    function(row, state, None)
"""


class Transaction(Step):
    """A state transaction.

    Its conditions, and modifications that read other rows, read the state before the event. Then its operations take
    effect in program order, or none does.
    """

    def __init__(self, shared: Shared, operator: Operator, is_last: bool):
        super().__init__(shared, operator, is_last)
        self.dropped = False
        requires: list = []
        operations: list = []
        results: list = []
        self.namespace |= {
            "_require": requires.append,
            "_operate": operations.append,
            "_result": result_reader(results),
        }
        for table, rows in shared.tables.items():
            self.namespace[f"_table_{table.index}"] = rows
            self.namespace[f"_copy_{table.index}"] = copier(shared.program.records[table.row])
        plan, post, seq = self.compiled("plan"), self.compiled("post"), self.seq
        used = self.printer.read_fields
        copiers = {t.index: copier(shared.program.records[t.row], used[t.index]) for t in shared.tables}

        def take(request: Any) -> None:
            requires.clear()
            operations.clear()
            results.clear()
            self.dropped = False
            seq[0] = request.seq
            plan(request, None)
            if self.dropped:
                return
            accepted = True
            for condition, places, extra in requires:  # all of them, also after one has failed
                if not (places if condition is None else condition(*places, request, *extra)):
                    accepted = False
            for change, row, others, extra in operations:
                if change is None:
                    results.append((extra, copiers[extra](row)))
                elif accepted:
                    change(row, *others, request, *extra)
            if not accepted:
                shared.rejected += 1
            post(request, accepted, None)

        self.take = take

    def _count_dropped(self) -> None:
        super()._count_dropped()
        self.dropped = True


def result_reader(results: list) -> Callable:
    """Return `txn.result` over the results of an event's reads."""

    def result(index: int, table: int) -> Any:
        if not 0 <= index < len(results):
            raise IndexError(f"txn.result: index {index} out of range 0..{len(results) - 1}")
        source_table, row = results[index]
        if source_table != table:
            raise ValueError(f"txn.result: read {index} was of another table")
        return row

    return result
