"""Scans: loops over a queue whose body is one `if`; the compiled loop runs them in chunks.

The code first searches a chunk for a row that meets the condition. The search reads columns only, in adjacent memory,
and has no branches, so the processor compares several rows at once. Only if there is such a row, the loop runs as in
the source, over this chunk.

This has the same meaning if the condition cannot raise, and if the body changes nothing that the condition reads.
`scanned` decides that from the typed tree.
"""

from __future__ import annotations

from streaming_core.language.record import Queue
from streaming_core.language.typed.expressions import READING
from streaming_core.language.typed.kinds import INT
from streaming_core.language.typed.tree import Function, Node, within

CHUNK = 64
# Expressions that cannot raise.
_TOTAL = frozenset(
    [
        "const",
        "var",
        "field",
        "compare",
        "all",
        "any",
        "not",
        "truth",
        "cast",
        "add",
        "sub",
        "mul",
        "and",
        "or",
        "xor",
        "invert",
        "neg",
        "abs",
        "min",
        "max",
        "windowstart",
        "windowend",
        "windowkey",
    ]
)
# Statements that change nothing that a condition reads, except the variables and fields that `_is_apart` checks.
_APART = frozenset({"pass", "emit", "if", "assign", "setfield", "drop", "return"})


def scanned(loop: Node, function: Function) -> Node | None:
    """Return the queue that a loop scans; None if it is no scan."""
    bounds, body = loop.args
    if len(bounds) != 1 or len(body) != 1 or body[0].op != "if" or body[0].args[2]:
        return None
    [length], [branch] = bounds, body
    if length.op != "method" or length.data != "length" or function.variables[loop.data] != INT:
        return None
    [queue] = length.args
    if queue.op != "var" or not isinstance(queue.kind.type, Queue):
        return None
    condition, statements, _ = branch.args
    if not _is_total(condition, queue.data, loop.data) or not any(node.op == "queued" for node in within([condition])):
        return None
    names = {node.data for node in within([condition]) if node.op == "var"} | {queue.data, loop.data}
    fields = {node.data.name for node in within([condition]) if node.op == "field"}
    return queue if _is_apart(statements, names, fields) else None


def _is_total(node: Node, queue: str, index: str) -> bool:
    """Whether an expression cannot raise. A row of the queue is one if the loop's variable is its position."""
    if node.op == "queued":
        owner, position = node.args
        return (owner.op, owner.data, position.op, position.data) == ("var", queue, "var", index)
    if node.op not in _TOTAL or (node.op == "const" and isinstance(node.data, bytes)):
        return False
    return all(_is_total(part, queue, index) for part in node.args)


def _is_apart(statements: list[Node], names: set[str], fields: set[str]) -> bool:
    for statement in statements:
        if statement.op not in _APART:
            return False
        if statement.op == "assign" and statement.data in names:
            return False
        if statement.op == "setfield" and statement.data.name in fields:
            return False
        if statement.op == "if":
            condition, then, otherwise = statement.args
            if not _is_quiet(condition) or not _is_apart([*then, *otherwise], names, fields):
                return False
        elif not all(_is_quiet(part) for part in statement.args):
            return False
    return True


def _is_quiet(expression: Node) -> bool:
    """Whether an expression changes no state."""
    acts = (node.op == "call" or (node.op == "method" and node.data not in READING) for node in within([expression]))
    return not any(acts)
