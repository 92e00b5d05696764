"""Transactions executed wrongly on purpose: what the property tests have to find.

Each fault is one that a scheme could have, in a sequential form so that it is there every time it could be.
"""

import copy
from collections.abc import Callable

from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.interpreter.rows import copier
from streaming_core.oracle.interpreter.steps import result_reader


class Faulty(Interpreter):
    """An interpreter of a transaction whose conditions and operations are carried out by `carry_out`.

    It is called with the event's conditions, each as a function of whether it holds, its operations, each as the rows
    it changes and a function that applies it or reads (given whether the event is accepted), and `outdated(rows)`,
    which gives rows as they were before the previous event; and returns whether the event is accepted.
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
        copiers = {t.index: copier(self.program.resolved(t.row), used[t.index]) for t in self.tables}
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

            rows = [row for table in self.tables.values() for row in table]
            now = {id(row): copy.deepcopy(row) for row in rows}

            def operate(change, row, others, extra, accepted, among=lambda row: now[id(row)]):
                if change is None:
                    results.append((extra, copiers[extra](row)))
                elif accepted:
                    change(row, *map(among, others), request, *extra)

            accepted = carry_out(conditions, operations, holds, operate, lambda row: former.get(id(row), row))
            if accepted is None:  # undo everything
                for row in rows:
                    restore(row, now[id(row)])
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


def restore(row, before) -> None:
    """Makes the row what it was."""
    for name in row.__slots__:
        setattr(row, name, copy.deepcopy(getattr(before, name)))


def met(conditions) -> bool:
    """Whether all of them hold; every one is looked at, for it may fail."""
    return all(list(conditions))


def right(conditions, operations, holds, operate, outdated):
    """No fault: so that it is the fault that is found, and not its being brought about."""
    accepted = met(holds(*condition) for condition in conditions)
    for operation in operations:
        operate(*operation, accepted)
    return accepted


def lost_dependency(conditions, operations, holds, operate, outdated):
    """A condition over several rows does not wait for what the event before did to them."""
    accepted = met(holds(*c, outdated) if c[0] is not None and len(c[1]) > 1 else holds(*c) for c in conditions)
    for operation in operations:
        operate(*operation, accepted)
    return accepted


def condition_on_the_state_after(conditions, operations, holds, operate, outdated):
    """Conditions see what their own event has changed."""
    for operation in operations:
        operate(*operation, True)
    return True if met(holds(*condition) for condition in conditions) else None


def other_rows_as_they_are(conditions, operations, holds, operate, outdated):
    """A modification sees what its own event has done to other rows."""
    accepted = met(holds(*condition) for condition in conditions)
    for operation in operations:
        operate(*operation, accepted, lambda row: row)
    return accepted


def abort_that_leaves_a_write(conditions, operations, holds, operate, outdated):
    """The first modification of a rejected event stays."""
    accepted = met(holds(*condition) for condition in conditions)
    first = next((i for i, operation in enumerate(operations) if operation[0] is not None), None)
    for i, operation in enumerate(operations):
        operate(*operation, accepted or i == first)
    return accepted


FAULTS = [lost_dependency, condition_on_the_state_after, other_rows_as_they_are, abort_that_leaves_a_write]
