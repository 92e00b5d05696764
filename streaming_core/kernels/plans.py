"""The order of steps in a transaction's plan, read from its source: how many passes the plan needs.

A plan calls its `txn` by one name, and passes it once to each function: the language has no other way.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection

from streaming_core.language.source import Source


def passes(plan: Callable, readers: Collection[Callable] = ()) -> tuple[str, ...]:
    """Return the passes that carry out a transaction's plan at once, and what each does.

    A dropped event evaluates no conditions. Conditions read the state before the event, and so do `readers`:
    modifications that read other rows. A plan may deviate from this order on some path, or hide its order from its
    source. Then it takes one more pass.
    """
    order = _Order(readers)
    order.function(plan, 1, 0)
    if order.drops_late:
        return ("drop", "check", "act")
    return ("drop check", "act") if order.checks_late else ("drop check act",)


class _Order:
    """Walks the paths of a plan, and of the functions that get its `txn`, with the steps that may precede."""

    CHECKED, ACTED = 1, 2

    def __init__(self, readers: Collection[Callable]) -> None:
        self.readers = readers
        self.drops_late = self.checks_late = False

    def function(self, function: Callable, position: int, done: int) -> int:
        """Walks a function whose argument at `position` is `txn`; returns what may be done behind it."""
        source = Source(function)
        ends = [0]
        after = self._block(source.definition.body, (source, source.definition.args.args[position].arg), done, ends)
        return (after or 0) | ends[0]

    def _block(self, statements: list[ast.stmt], scope: tuple, done: int, ends: list[int]) -> int | None:
        """What may be done behind the statements; None when none of their paths goes on."""
        for statement in statements:
            match statement:
                case ast.If():
                    done = self._calls(statement.test, scope, done)
                    paths = [self._block(part, scope, done, ends) for part in (statement.body, statement.orelse)]
                    if paths == [None, None]:
                        return None
                    done = (paths[0] or 0) | (paths[1] or 0)
                case ast.For() | ast.While():
                    head = statement.iter if isinstance(statement, ast.For) else statement.test
                    for _ in range(2):  # what one turn does, the next one's statements follow
                        done = self._calls(head, scope, done)
                        done |= self._block(statement.body, scope, done, ends) or 0
                case ast.Return():
                    ends[0] |= done
                    return None
                case _:
                    done = self._calls(statement, scope, done)
        return done

    def _calls(self, node: ast.AST, scope: tuple, done: int) -> int:
        source, txn = scope
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == txn:
                match call.func.attr:
                    case "drop":
                        self.drops_late |= done != 0
                    case "require":
                        self.checks_late |= bool(done & self.ACTED)
                        done |= self.CHECKED
                    case "modify" | "read" as word:
                        if word == "modify" and source.outer(call.args[1]) in self.readers:
                            self.checks_late |= bool(done & self.ACTED)
                            done |= self.CHECKED
                        done |= self.ACTED
            elif txn in (passed := [ast.unparse(a) for a in call.args]):
                done = self.function(source.outer(call.func), passed.index(txn), done)
        return done
