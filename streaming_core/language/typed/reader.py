"""Statements of the language: reads a function as a typed tree.

A variable has one type in a function: the join of everything assigned to it (boolean < integer < float).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Container
from typing import Any

from streaming_core.language.application import Transaction
from streaming_core.language.record import (
    CONTAINERS,
    VALID,
    Array,
    Queue,
    Record,
    Resolved,
    Scalar,
    Slot,
    Text,
    u32,
    visible,
)
from streaming_core.language.source import by_position, is_over_rows, whole_row
from streaming_core.language.typed import advice
from streaming_core.language.typed.bound import Bound
from streaming_core.language.typed.expressions import Expressions
from streaming_core.language.typed.kinds import (
    BOOL,
    INT,
    NONE,
    NUMBERS,
    OUT,
    PLAN,
    TEXT,
    ArrayKind,
    BoxKind,
    KeysKind,
    RowKind,
)
from streaming_core.language.typed.tree import Function, Node

MOST_ROWS = 100  # rows that a condition or modification can read


class Reader(Expressions):
    """The reader of one function at one combination of argument types."""

    returned: Any = None  # the type of what it returns, as far as known

    def __init__(self, program: Bound, function: Callable, arguments: tuple, output: Record | None):
        super().__init__(program, function, arguments, output)
        self.breaks: list[list] = []  # for each enclosing loop, the variables with a value at each `break`

    def read(self) -> Function:
        """Type the function: repeat until the types of its variables no longer grow."""
        while True:
            before = dict(self.variables), self.returned
            self.assigned = {name for name, _ in self.parameters}
            body = self.block(self.definition.body)
            if (self.variables, self.returned) == before:
                break
        if self.returned not in (None, NONE) and self.assigned is not None:
            raise self.fail(self.definition, "some paths return a value and others nothing; return one on every path")
        return Function(
            self.function.__name__,
            self.file,
            self.definition.lineno,
            self.parameters,
            body,
            self.returned or NONE,
            self.variables,
        )

    # --- statements --------------------------------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt]) -> list[Node]:
        """Type statements that follow one another."""
        out: list[Node] = []
        for statement in statements:
            nodes = self.statement(statement)
            for node in nodes:
                node.line = node.line or statement.lineno
            out += nodes
        return out

    def branch(self, statements: list[ast.stmt], assigned: set[str] | None) -> tuple[list[Node], set[str] | None]:
        """Type the statements of a branch.

        Args:
            statements: The branch.
            assigned: The variables with a value before it; None if it is unreachable.

        Returns:
            The typed statements, and the variables with a value after them.
        """
        self.assigned = assigned
        return self.block(statements), self.assigned

    def leave(self, node: ast.AST, kind: Any) -> Any:
        """Note that the function returns a value of this type here; the type of all its returns."""
        self.returned = self.joined(node, kind if self.returned is None else self.returned, kind)
        self.assigned = None
        return self.returned

    def statement(self, node: ast.stmt) -> list[Node]:
        """Type one statement."""
        match node:
            case ast.Pass() | ast.Break() | ast.Continue() | ast.Return():
                return [self.jump(node)]
            case ast.Assign(targets=[target], value=value):
                return self.stored(node, target, value)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                return self.stored(node, target, value)
            case ast.AugAssign():
                return self.augmented(node)
            case ast.If():
                return [self.conditional(node)]
            case ast.While(orelse=[]):
                return [self.while_loop(node)]
            case ast.For(
                target=ast.Name(id=name),
                iter=ast.Call(func=ast.Attribute(value=owner, attr="split"), args=args, keywords=[]),
                orelse=[],
            ):
                return [self.split(node, name, owner, args)]
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, orelse=[]) if self.is_range(call):
                return [self.for_loop(node, name, call)]
            case ast.For(target=ast.Name(id=name), orelse=[]) if is_over_rows(node):
                return [self.loop_over_rows(node, name)]
            case ast.Expr(value=ast.Call() as call):
                return self.effect(call)
        raise self.foreign(node)

    def jump(self, node: ast.Pass | ast.Break | ast.Continue | ast.Return) -> Node:
        """Type `pass`, or a statement that leaves a loop turn, a loop or the function."""
        match node:
            case ast.Pass():
                return Node("pass", NONE)
            case ast.Break():
                self.breaks[-1].append(self.assigned)
                self.assigned = None
                return Node("break", NONE)
            case ast.Continue():
                self.assigned = None
                return Node("continue", NONE)
            case ast.Return(value=value):
                if value is None:
                    self.leave(node, NONE)
                    return Node("return", NONE)
                result = self.expression(value)
                return Node("return", NONE, [self.cast(result, self.leave(node, result.kind))])

    def augmented(self, node: ast.AugAssign) -> list[Node]:
        """Type `target += value` as `target = target + value`; an index has its value once, before both."""
        target, before = node.target, list[Node]()
        if not isinstance(target, ast.Name):
            self.calm(node, self.row(target.value), "the row or array of an augmented assignment")
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Name | ast.Constant | ast.Slice):
            index = self.integer(node, self.expression(target.slice))
            before, name = self.variable(node, "index", index)
            target = ast.copy_location(ast.Subscript(target.value, name, ast.Store()), target)
        whole = ast.copy_location(ast.BinOp(target, node.op, node.value), node)
        return [*before, *self.stored(node, target, whole)]

    def variable(self, node: ast.stmt | ast.expr, role: str, value: Node) -> tuple[list[Node], ast.Name]:
        """Assign to a variable that the source does not have; its name depends on its place alone."""
        name = f"_{role}_{node.lineno}_{node.col_offset}"
        assigned = Node("assign", NONE, [self.cast(value, self.assign(node, name, value.kind))], name)
        return [assigned], ast.copy_location(ast.Name(name, ast.Load()), node)

    def conditional(self, node: ast.If) -> Node:
        """Type `if`; a branch that a parameter rules out is unreachable."""
        condition, before = self.condition(node.test), self.assigned
        known = condition.data if condition.op == "const" else None
        then, after = self.branch(node.body, None if known is False else before)
        other, instead = self.branch(node.orelse, None if known is True else before)
        self.assigned = _on_all_paths([after, instead])
        return Node("if", NONE, [condition, then, other])

    def while_loop(self, node: ast.While) -> Node:
        """Type a `while` loop."""
        condition, before = self.condition(node.test), self.assigned
        self.breaks.append([])
        known = condition.data if condition.op == "const" else None
        turn, _ = self.branch(node.body, None if known is False else before)
        ends = self.breaks.pop()
        self.assigned = _on_all_paths(ends) if known is True else before
        return Node("while", NONE, [condition, turn])

    def for_loop(self, node: ast.For, name: str, call: ast.Call) -> Node:
        """Type `for name in range(...)`."""
        bounds = [self.integer(a, self.expression(a)) for a in call.args]
        if not 1 <= len(bounds) <= 3 or call.keywords:
            raise self.fail(node, "range() takes one to three integers")
        return Node("for", NONE, [bounds, self.turn(node, name, INT)], name)

    def split(self, node: ast.For, name: str, owner: ast.expr, args: list[ast.expr]) -> Node:
        """Type `for name in text.split(separator)`; without a separator, the words between ASCII whitespace."""
        text, *rest = (self.expression(e) for e in (owner, *args))
        if text.kind != TEXT:
            raise self.fail(node, f"split() works only on a text, not on {text.kind}")
        is_byte = len(rest) == 1 and rest[0].op == "const" and rest[0].kind == TEXT and len(rest[0].data) == 1
        if rest and not is_byte:
            raise self.fail(
                node, 'split() takes one byte, such as " " or ",", or nothing, for words between whitespace'
            )
        return Node("split", NONE, [[text, *rest], self.turn(node, name, TEXT)], name)

    def turn(self, node: ast.For, name: str, kind: Any) -> list[Node]:
        """Type the body of a `for` loop, whose variable has this type; the loop may run zero times."""
        before = self.assigned
        self.assign(node, name, kind)
        self.breaks.append([])
        body, _ = self.branch(node.body, self.assigned)
        self.breaks.pop()
        self.assigned = before
        return body

    def loop_over_rows(self, node: ast.For, name: str) -> Node:
        """Type `for row in queue:`, whose body reads the rows and leaves the queue alone."""
        queue = self.expression(node.iter)
        if not isinstance(queue.kind, BoxKind) or not isinstance(queue.kind.type, Queue):
            raise self.fail(node, f"a loop goes over range(...), a queue or text.split(...), not over {queue.kind}")
        written = ast.unparse(node.iter)
        for inner in (part for statement in node.body for part in ast.walk(statement)):
            match inner:
                case ast.Name(id=known, ctx=ast.Store()) if known in (name, written):
                    raise self.fail(inner, f"cannot assign to {known} in a loop over {written}; use another variable")
                case ast.Call(func=ast.Attribute(value=owner, attr="append" | "popleft" | "clear" as method)) if (
                    ast.unparse(owner) == written
                ):
                    raise self.fail(inner, f"a loop over {written} cannot call its {method}(); call it after the loop")
        loop = by_position(node)
        assert isinstance(loop.target, ast.Name)
        assert isinstance(loop.iter, ast.Call)
        return self.for_loop(loop, loop.target.id, loop.iter)

    def is_range(self, call: ast.Call) -> bool:
        """Whether a call is a call of Python's `range`."""
        name = self.called(call)
        return name == "range" and name not in self.names

    def assign(self, node: ast.stmt | ast.expr, name: str, kind: Any) -> Any:
        """A variable gets a value of this type; returns that of the variable."""
        self.variables[name] = self.joined(node, self.variables.get(name, kind), kind)
        if self.assigned is not None:
            self.assigned = self.assigned | {name}
        return self.variables[name]

    def stored(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> list[Node]:
        """Type an assignment; of a field that may be null, the stores of its value and of its validity."""
        field = self.nullable(target)
        if field is None:
            return [self.store(node, target, self.field_value(target, value))]
        slot, before = field[1].data, list[Node]()
        stored, valid = self.optional(value, field[0].data.type)
        if valid.op == "ifexp":  # it may read the field
            before, name = self.variable(node, "valid", valid)
            valid = self.expression(name)
        return [*before, self.store(node, target, stored), Node("setfield", NONE, [field[1].args[0], valid], slot)]

    def field_value(self, target: ast.expr, value: ast.expr) -> Node:
        """Type a value for a field that is not null.

        Kernels do not know the types of rows. If another record has a field of this name that may be null, they
        evaluate a condition twice.
        """
        if isinstance(target, ast.Attribute) and target.attr in self.program.nullable:
            for choice in ast.walk(value):
                if isinstance(choice, ast.IfExp):
                    self.calm(value, self.condition(choice.test), "the condition of a value that may be null")
        return self.expression(value)

    def store(self, node: ast.stmt, target: ast.expr, value: Node) -> Node:
        """Type an assignment to a variable, a field of a row or an item of an array."""
        match target:
            case ast.Name(id=name):
                if value.kind == NONE:
                    raise self.fail(node, "the called function returns nothing, so there is no value to assign")
                return Node("assign", NONE, [self.cast(value, self.assign(node, name, value.kind))], name)
            case ast.Attribute(value=owner, attr=name):
                row = self.row(owner)
                slot = self.field(node, row, name)
                where = f"{row.kind.resolved.name}.{name}"
                if not isinstance(slot.type, Scalar | Text):
                    reason = f"cannot assign to {where}, which is neither a scalar nor a text"
                    if isinstance(slot.type, CONTAINERS):
                        reason += f"; write an entry with {advice.changed_by(type(slot.type))}"
                    if isinstance(slot.type, Array):
                        reason += f"; assign to single items: {name}[i] = ..."
                    raise self.fail(node, reason)
                if not row.kind.writable:
                    raise self.fail(node, f"cannot assign to {where}: the row is read-only here")
                return Node("setfield", NONE, [row, self.fit(node, value, slot.type, where)], slot)
            case ast.Subscript(value=owner, slice=index) if not isinstance(index, ast.Slice):
                array = self.expression(owner)
                if isinstance(array.kind, BoxKind):
                    method = advice.changed_by(type(array.kind.type))
                    raise self.fail(node, f"cannot assign to an item of {array.kind}; write an entry with {method}")
                position = self.position(owner, index)
                if not isinstance(array.kind, ArrayKind) or not array.kind.writable:
                    reason = (
                        f"{array.kind.where}: the row is"
                        if isinstance(array.kind, ArrayKind)
                        else f"{array.kind}: it is"
                    )
                    raise self.fail(node, f"cannot assign to an item of {reason} read-only here")
                fitted = self.fit(node, value, array.kind.item, array.kind.where)
                return Node("setitem", NONE, [array, position, fitted])
        raise self.fail(node, f"cannot assign to `{ast.unparse(target)}`; assign to one variable, field or item")

    def effect(self, call: ast.Call) -> list[Node]:
        """A call whose value is not used."""
        if isinstance(call.func, ast.Attribute):
            name = call.func.attr
            owner = self.expression(call.func.value)
            if owner.kind == OUT and name == "emit":
                return self.emit(call)
            if owner.kind in (OUT, PLAN) and name == "drop" and not call.args and not call.keywords:
                if self.program.app.kind == "transaction" and self.function not in self.program.roles():
                    raise self.fail(call, "only the transaction and its post function can call drop(), not this helper")
                self.leave(call, NONE)
                return [Node("drop", NONE), Node("return", NONE)]
            if owner.kind == PLAN:
                return [self.access(call, name)]
            if isinstance(owner.kind, KeysKind) and name == "add":
                resolved = owner.kind.resolved
                before, values = self.in_order(call, self.fields(call, "keys.add", resolved, resolved.state[0]))
                return [*before, Node("key", NONE, values, resolved)]
            if isinstance(owner.kind, BoxKind) and isinstance(owner.kind.type, Queue) and name == "append":
                return [self.append(call, owner)]
        return [Node("effect", NONE, [self.expression(call)])]

    def emit(self, call: ast.Call) -> list[Node]:
        """Type `out.emit(field=value, ...)`."""
        assert self.output is not None  # a function with an `out` has an output record
        output = self.program.records[self.output]
        if len(call.args) == 1 and isinstance(call.args[0], ast.Name):
            call = self.with_row(call, output)
        before, values = self.in_order(call, self.fields(call, "emit", output, output.event[0]))
        return [*before, Node("emit", NONE, values, output)]

    def with_row(self, call: ast.Call, output: Resolved) -> ast.Call:
        """Return `out.emit(row, field=value, ...)` with all fields by name; of no row, the call as it is."""
        row = self.expression(call.args[0])
        if not isinstance(row.kind, RowKind):
            return call
        fields = [name for name in visible(output.event[0]) if name != "seq"]
        changed = {keyword.arg for keyword in call.keywords}
        if missing := [name for name in fields if name not in changed and name not in row.kind.slots]:
            reason = f"{row.kind.resolved.name} has no field {missing[0]}"
            raise self.fail(call, f"emit({ast.unparse(call.args[0])}): {reason}; add {missing[0]}=...")
        for name in [name for name in fields if name not in changed]:
            left, right = row.kind.slots[name].type, output.event[0][name].type
            if isinstance(left, Scalar) and isinstance(right, Scalar) and left.scale != right.scale:
                records = f"{left.declared} in {row.kind.resolved.name} and {right.declared} in {output.name}"
                raise self.fail(call, f"emit({ast.unparse(call.args[0])}): {name} is {records}; add {name}=...")
        return whole_row(call, fields)

    def in_order(self, call: ast.Call, values: dict[str, Node]) -> tuple[list[Node], list[Node]]:
        """Assignments of values in written order, and the values in the order of the fields."""
        written = [keyword.arg for keyword in call.keywords if keyword.arg is not None]
        before: list[Node] = []
        if written != visible(values):
            for name in with_validities(written, values):
                assigned, variable = self.variable(call, name, values[name])
                before += assigned
                values[name] = self.expression(variable)
        return before, list(values.values())

    def append(self, call: ast.Call, queue: Node) -> Node:
        """Type an append to a queue: its values in written order, the order of evaluation, and their fields."""
        self.changed(call, queue.kind)
        row = self.program.records[queue.kind.type.item]
        slots = row.state[0]
        values = self.fields(call, "append", row, slots)
        written = with_validities([keyword.arg for keyword in call.keywords if keyword.arg is not None], values)
        return Node("append", NONE, [queue, *(values[name] for name in written)], [slots[name] for name in written])

    def fields(self, call: ast.Call, function: str, record: Resolved, slots: dict[str, Slot]) -> dict[str, Node]:
        """The keyword arguments of a call, converted to the fields of a record, in the order of the fields."""
        declared = visible(slots)
        form = f"{function}({', '.join(f'{name}=...' for name in declared if name != 'seq')})"
        if call.args or any(k.arg is None for k in call.keywords):
            raise self.fail(call, f"{function}() takes every field by name; write {form}")
        names = [k.arg for k in call.keywords if k.arg is not None]
        if sorted(names) != sorted(declared):
            missing = ", ".join(name for name in declared if name not in names)
            extra = ", ".join(name for name in names if name not in declared)
            faults = [f"{what} {which}" for what, which in (("is missing", missing), ("has no field", extra)) if which]
            raise self.fail(call, f"{function}() {' and '.join(faults)}; write {form}")
        values = {}
        for name in declared:
            slot, where = slots[name], f"{record.name}.{name}"
            written = next(k.value for k in call.keywords if k.arg == name)
            if slot.is_nullable:
                assert isinstance(slot.type, Scalar | Text)
                value, values[VALID + name] = self.optional(written, slot.type)
            else:
                value = self.field_value(ast.Attribute(ast.Name("_"), name), written)
            if isinstance(slot.type, Scalar | Text):
                value = self.fit(call, value, slot.type, where)
            elif isinstance(slot.type, Array):
                expected = slot.type.item, slot.count
                if not isinstance(value.kind, ArrayKind) or (value.kind.item, value.kind.count) != expected:
                    holds = f"which holds {slot.count} items of {slot.type.item.declared}"
                    raise self.fail(call, f"cannot store {value.kind} in {where}, {holds}")
            values[name] = value
        return {name: values[name] for name in slots}

    def access(self, call: ast.Call, name: str) -> Node:
        """`txn.require`, `txn.modify`, `txn.read` in a plan."""
        self.positional(call)
        request = next((k for _, k in self.parameters if isinstance(k, RowKind) and k.role == "event"), None)
        if request is None and name != "read":
            raise self.fail(call, f"a function that calls txn.{name} must also take the event as an argument")

        def place(node: ast.expr) -> Node:
            row = self.expression(node)
            if not isinstance(row.kind, RowKind) or row.kind.role != "place":
                raise self.fail(call, f"txn.{name} takes a row here; get one with txn.row(table, key)")
            return row

        def rest(arguments: list[ast.expr]) -> tuple[list[Node], list[Node]]:
            """The rows that a condition or modification reads, and the integer after them, if there is one."""
            last = self.expression(arguments[-1]).kind if arguments else None
            extra = self.argument(call, arguments[-1:] if last in (INT, BOOL) else [])
            rows = [place(p) for p in arguments[: len(arguments) - len(extra)]]
            if len(rows) > MOST_ROWS:
                raise self.fail(call, f"txn.{name} can read at most {MOST_ROWS} rows, got {len(rows)}")
            return rows, extra

        def read(rows: list[Node], role: str) -> list[Any]:
            return [RowKind(row.kind.resolved, role, False, row.kind.table) for row in rows]

        match name, call.args:
            case "require", [condition, *rest_of_call]:
                rows, extra = rest(rest_of_call)
                if extra and not rows:
                    raise self.fail(call, "txn.require needs at least one row before the integer")
                kinds = [*read(rows, "table" if len(rows) == 1 else "joint"), request, *(e.kind for e in extra)]
                function = self.program.function(self.named(condition, "require"), kinds)
                if function.kind not in NUMBERS:
                    raise self.fail(
                        call, f"condition {function.name} returns {function.kind}; it must return a boolean or a number"
                    )
                return Node("require", NONE, rows, (function, extra))
            case "modify", [where, change, *rest_of_call]:
                row, (others, extra) = place(where), rest(rest_of_call)
                kind = RowKind(row.kind.resolved, "table", True, row.kind.table)
                kinds = [kind, *read(others, "joint"), request, *(e.kind for e in extra)]
                function = self.program.function(self.named(change, "modify"), kinds)
                return Node("modify", NONE, [row, *others], (function, extra))
            case "read", [where]:
                return Node("read", NONE, [place(where)])
        raise self.fail(call, advice.of_access(name))

    def argument(self, call: ast.Call, values: list[ast.expr]) -> list[Node]:
        """The integer after a row or function, if there is one."""
        assert isinstance(call.func, ast.Attribute)  # txn.require, txn.modify
        what = u32, f"the argument of txn.{call.func.attr}"
        return [Node("fit", INT, [self.integer(call, self.expression(v))], what, call.lineno) for v in values]

    def named(self, node: ast.expr, what: str) -> Callable:
        """Return the function that an argument of `txn.require` or `txn.modify` names."""
        function = self.outer(node)
        if isinstance(function, Transaction) or not inspect.isfunction(function):
            raise self.fail(node, f"txn.{what} takes a function here; write it with def at the top level of the file")
        return function


def with_validities(names: list[str], values: Container[str]) -> list[str]:
    """The names of fields, and behind each one that may be null the name of its validity."""
    both = [column for name in names for column in (name, VALID + name)]
    return [name for name in both if name in values]


def _on_all_paths(paths: list[set[str] | None]) -> set[str] | None:
    """The variables that have a value after every path; a path that is never taken is None."""
    taken = [path for path in paths if path is not None]
    return set.intersection(*taken) if taken else None
