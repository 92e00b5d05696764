"""Transactions with a planted fault, which the property tests must detect.

Each fault is one that a scheme could have. It is sequential here, so it shows whenever the events allow it.
"""

import copy
from collections.abc import Callable

from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.interpreter.rows import copier
from streaming_core.oracle.interpreter.steps import result_reader


class Faulty(Interpreter):
    """An interpreter of a transaction that leaves conditions and operations to a function, `carry_out`.

    `carry_out(conditions, operations, holds, operate, outdated)` returns whether it accepts the event, or None to undo
    it. Its arguments:

    - conditions: those of the event; `holds(*condition)` evaluates one.
    - operations: those of the event; `operate(*operation, accepted)` applies a change or records a read.
    - outdated: a function that returns a row as it was before the previous event.
    """

    def __init__(self, app, params: dict, carry_out: Callable):
        super().__init__(app, params)
        [step] = self._steps
        conditions, operations = (step.namespace[name].__self__ for name in ("_require", "_operate"))
        results: list = []
        step.namespace["_result"] = result_reader(results)
        plan, post = step.compiled("plan"), step.compiled("post")
        for table in self.tables:
            step.namespace[f"_copy_{table.index}"] = lambda row: row
        used = step.printer.read_fields
        copiers = {t.index: copier(self.program.records[t.row], used[t.index]) for t in self.tables}
        former: dict = {}

        def take(request):
            for kept in (conditions, operations, results):
                kept.clear()
            step.dropped = False
            step.seq[0] = request.seq
            plan(request, None)
            if step.dropped:
                return

            def holds(condition, places, extra, among=lambda row: row):
                return places if condition is None else condition(*map(among, places), request, *extra)

            tables = self.tables.values()
            rows = [row for table in tables for row in (table.values() if isinstance(table, dict) else table)]
            now = {id(row): copy.deepcopy(row) for row in rows}

            def operate(change, row, others, extra, accepted, among=lambda row: now[id(row)]):
                if change is None:
                    results.append((extra, copiers[extra](row)))
                elif accepted:
                    change(row, *map(among, others), request, *extra)

            accepted = carry_out(conditions, operations, holds, operate, lambda row: former.get(id(row), row))
            if accepted is None:  # undo everything
                restore_all(rows, now)
                results.clear()
                for operation in operations:
                    operate(*operation, False)
                accepted = False
            former.clear()
            former.update(now)
            if not accepted:
                step.shared.rejected += 1
            post(request, accepted, None)

        step.take = take


def restore_all(rows, before: dict) -> None:
    """Restore each row from its copy; `before` maps the ids of rows to copies."""
    for row in rows:
        restore(row, before[id(row)])


def restore(row, before) -> None:
    """Restore a row from its copy."""
    for name in row.__slots__:
        setattr(row, name, copy.deepcopy(getattr(before, name)))


def all_hold(conditions) -> bool:
    """Whether all conditions hold. Evaluates every one, because each may fail."""
    return all(list(conditions))


def right(conditions, operations, holds, operate, outdated):
    """No fault. Shows that tests detect the faults, and not this way of planting them."""
    accepted = all_hold(holds(*condition) for condition in conditions)
    for operation in operations:
        operate(*operation, accepted)
    return accepted


def lost_dependency(conditions, operations, holds, operate, outdated):
    """A condition over several rows does not wait for the changes of the previous event."""
    accepted = all_hold(holds(*c, outdated) if c[0] is not None and len(c[1]) > 1 else holds(*c) for c in conditions)
    for operation in operations:
        operate(*operation, accepted)
    return accepted


def condition_on_the_state_after(conditions, operations, holds, operate, outdated):
    """Conditions see the changes of their own event."""
    for operation in operations:
        operate(*operation, True)
    return True if all_hold(holds(*condition) for condition in conditions) else None


def other_rows_as_they_are(conditions, operations, holds, operate, outdated):
    """A modification sees the changes of its own event to other rows."""
    accepted = all_hold(holds(*condition) for condition in conditions)
    for operation in operations:
        operate(*operation, accepted, lambda row: row)
    return accepted


def abort_that_leaves_a_write(conditions, operations, holds, operate, outdated):
    """The first modification of a rejected event stays."""
    accepted = all_hold(holds(*condition) for condition in conditions)
    first = next((i for i, operation in enumerate(operations) if operation[0] is not None), None)
    for i, operation in enumerate(operations):
        operate(*operation, accepted or i == first)
    return accepted


FAULTS = [lost_dependency, condition_on_the_state_after, other_rows_as_they_are, abort_that_leaves_a_write]
