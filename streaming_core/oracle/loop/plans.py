"""The order of steps in a transaction's plan, from its typed tree: whether one pass over it is enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streaming_core.language.typed.kinds import PLAN
from streaming_core.language.typed.tree import Function, Node, within


def plans(function: Function) -> bool:
    """Whether a function takes the transaction, and so may have conditions and operations."""
    return any(kind == PLAN for _, kind in function.parameters)


def operates(function: Function) -> bool:
    """Whether a function that a plan calls has conditions or operations."""
    return has(function, lambda node: node.op in ("require", "modify", "read"))


def reads_before(node: Node) -> bool:
    """Whether a step reads the state before the event: a condition, or a modification that reads other rows."""
    return node.op == "require" or reads_others(node)


def reads_others(node: Node) -> bool:
    """Whether a step is a modification that reads other rows."""
    return node.op == "modify" and len(node.args) > 1


def has(function: Function, step: Callable[[Node], bool]) -> bool:
    """Whether a plan, or a function that it calls, has such a step."""
    return any(step(n) or (n.op == "call" and plans(n.data) and has(n.data, step)) for n in within(function.body))


def follows(parts: list[Any], seen: bool, first: tuple[str, ...], second: Callable[[Node], bool]) -> tuple[bool, bool]:
    """Follow the order of steps in `parts`.

    Args:
        parts: Statements and expressions.
        seen: Whether one of the steps `first` comes before them.
        first: Operations of the first steps.
        second: Whether a node is a second step.

    Returns:
        Whether a first step comes before the end of `parts`, and whether a second step may follow a first one.
    """
    late = False
    for part in parts:
        if isinstance(part, list):
            seen, inside = follows(part, seen, first, second)
        elif part.op == "if":
            seen, inside = follows([part.args[0]], seen, first, second)
            ways = [follows(branch, seen, first, second) for branch in part.args[1:]]
            seen, inside = any(met for met, _ in ways), inside or any(after for _, after in ways)
        elif part.op in ("for", "split", "while"):
            seen, inside = follows(part.args, seen, first, second)
            inside = inside or (seen and follows(part.args, seen, first, second)[1])
        else:
            seen, inside = follows(part.args, seen, first, second)
            if part.op == "call" and plans(part.data):
                seen, further = follows(part.data.body, seen, first, second)
                inside = inside or further
            inside = inside or (seen and second(part))
            seen = seen or part.op in first
        late = late or inside
    return seen, late
