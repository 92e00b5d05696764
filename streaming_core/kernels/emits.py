"""The number of rows that an operator function emits for an input: the least and the most over all of its paths.

The runtime numbers the outputs of an event (`sub`) before the sink if it knows that later operators neither drop nor
multiply rows. It checks every batch against these bounds, so a wrong bound ends the run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from streaming_core.language.source import Source


@dataclass(frozen=True)
class Emits:
    """Bounds of the number of rows. `most`: None without a bound."""

    least: int = 0
    most: int | None = 0

    def more(self, least: int, most: int | None) -> Emits:
        """The bounds after a further part of the path."""
        return Emits(self.least + least, None if self.most is None or most is None else self.most + most)


def emits(function: Callable) -> Emits:
    """Returns the bounds of an operator function, whose last argument emits rows."""
    definition = Source(function).definition
    paths = _Paths(definition.args.args[-1].arg)
    through = paths.after(definition.body, Emits())
    return _joined([*paths.ends, *([] if through is None else [through])])


@dataclass
class _Paths:
    """The paths through a function. `ends`: the bounds of those that end with a return."""

    out: str
    ends: list[Emits] = field(default_factory=list)

    def after(self, body: Iterable[ast.stmt], before: Emits) -> Emits | None:
        """The bounds behind these statements; None if no path leads there."""
        now = before
        for statement in body:
            match statement:
                case ast.Return():
                    self.ends.append(self.through(now, statement))
                    return None
                case ast.Expr() if self.dropped(statement):
                    self.ends.append(now)  # nothing of a dropped input happens after it
                    return None
                case ast.Raise() | ast.Break() | ast.Continue():
                    return None
                case ast.If(test=test, body=then, orelse=otherwise):
                    now = self.through(now, test)
                    branches = [self.after(then, now), self.after(otherwise, now)]
                    known = [branch for branch in branches if branch is not None]
                    if not known:
                        return None
                    now = _joined(known)
                case ast.For() | ast.While():
                    # Any number of turns, a part of the last one included.
                    inside = Emits(now.least, None if self.emitted(statement) else now.most)
                    if any(isinstance(node, ast.Return) or self.dropped(node) for node in ast.walk(statement)):
                        self.ends.append(inside)
                    now = inside
                case ast.Expr(
                    value=ast.Call(func=ast.Attribute(value=ast.Name(id=self.out), attr="emit"), keywords=values)
                ):
                    for value in values:
                        now = self.through(now, value)
                    now = now.more(1, 1)
                case _:
                    now = self.through(now, statement)
        return now

    def through(self, now: Emits, part: ast.AST) -> Emits:
        """The bounds after a part that may pass the emitter to a function."""
        return now.more(0, None) if self.emitted(part) else now

    def dropped(self, node: ast.AST) -> ast.Name | None:
        """The emitter by which a statement drops the input, and so ends the function; None if it does not."""
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=self.out) as emitter, attr="drop"))):
                return emitter
        return None

    def emitted(self, statement: ast.AST) -> bool:
        """Whether a statement may emit: it names the emitter other than to drop an input."""
        drops = [self.dropped(node) for node in ast.walk(statement)]
        return any(
            isinstance(node, ast.Name) and node.id == self.out and node not in drops for node in ast.walk(statement)
        )


def _joined(paths: list[Emits]) -> Emits:
    """The bounds of several paths; a function without a path that ends emits nothing."""
    if not paths:
        return Emits()
    most = [path.most for path in paths]
    return Emits(min(path.least for path in paths), None if None in most else max(filter(None, [0, *most]), default=0))
