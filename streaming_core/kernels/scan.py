"""Scans: loops over a queue that act on few of its rows, rewritten so that the search for these rows is vectorised.

    for i in range(len(q)):             for each chunk of CHUNK rows:
        if condition(q[i]):       ->        if condition holds for any row of it, evaluated without branches:
            act(q[i])                           for i in chunk: if condition(q[i]): act(q[i])

The first loop over a chunk reads columns only, which lie in adjacent memory. So the compiler can compare several rows
with one instruction. Chunks without a row to act on, which are most in a join, cost nothing more.

Both mean the same. `matched` accepts a loop only if its condition cannot raise, and if the loop changes nothing that
the condition reads.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

CHUNK = 64  # rows: enough for wide vectors, and few enough to look through again

# Operators that never raise and have no side effects.
_PURE = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)
_PURE_CALLS = frozenset({"abs", "min", "max"})
_ORDERED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
# What a body may call: these change no state that a condition could read.
_CALLS = _PURE_CALLS | {"int", "float", "bool", "len"}
_METHODS = frozenset({"emit", "drop"})


@dataclass(frozen=True)
class Scan:
    """A loop over a queue: `for index in range(len(queue)): if condition: body`."""

    index: str
    queue: str
    condition: ast.expr
    body: list[ast.stmt]


def matched(loop: ast.For) -> Scan | None:
    """Return the scan that a loop is; None if it is no scan, or cannot be rewritten."""
    match loop:
        case ast.For(
            target=ast.Name(id=index),
            iter=ast.Call(
                func=ast.Name(id="range"),
                args=[ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=queue)], keywords=[])],
                keywords=[],
            ),
            body=[ast.If(test=condition, body=body, orelse=[])],
            orelse=[],
        ):
            scan = Scan(index, queue, condition, body)
            return scan if _is_pure(condition, scan) and _reads_rows(scan) and _is_apart(scan) else None
    return None


def _is_row(node: ast.AST, scan: Scan) -> bool:
    """Whether it is `queue[index]`."""
    match node:
        case ast.Subscript(value=ast.Name(id=queue), slice=ast.Name(id=index)):
            return (queue, index) == (scan.queue, scan.index)
    return False


def _is_pure(node: ast.expr, scan: Scan, is_condition: bool = True) -> bool:
    """Whether an expression cannot raise. A condition consists of comparisons, so its value is a boolean."""
    match node:
        case ast.BoolOp(values=values):
            return is_condition and all(_is_pure(value, scan) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return is_condition and _is_pure(operand, scan)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            sides = _is_pure(left, scan, False) and _is_pure(right, scan, False)
            return is_condition and isinstance(op, _ORDERED) and sides
    if is_condition:
        return False
    match node:
        case ast.Constant(value=bool() | int() | float()):
            return True
        case ast.Name(id=name):
            return name != scan.queue
        case ast.Attribute(value=owner):
            return _is_row(owner, scan) or isinstance(owner, ast.Name)
        case ast.BinOp(left=left, op=operator, right=right):
            return isinstance(operator, _PURE) and _is_pure(left, scan, False) and _is_pure(right, scan, False)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _is_pure(operand, scan, False)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return name in _PURE_CALLS and all(_is_pure(arg, scan, False) for arg in args)
    return False


def _reads_rows(scan: Scan) -> bool:
    return any(_is_row(node, scan) for node in ast.walk(scan.condition))


def _is_apart(scan: Scan) -> bool:
    """Whether the body changes nothing that the condition reads, and does not leave the loop half-way."""
    names = {node.id for node in ast.walk(scan.condition) if isinstance(node, ast.Name)} | {scan.queue, scan.index}
    fields = {node.attr for node in ast.walk(scan.condition) if isinstance(node, ast.Attribute)}
    for statement in scan.body:
        for node in ast.walk(statement):
            match node:
                case ast.Break() | ast.Continue() | ast.For() | ast.While():
                    return False
                case ast.Name(id=name, ctx=ast.Store()) if name in names:
                    return False
                case ast.Attribute(attr=field, ctx=ast.Store()) if field in fields:
                    return False
                case ast.Subscript(ctx=ast.Store()):
                    return False
                case ast.Call(func=ast.Name(id=name)) if name not in _CALLS:
                    return False
                case ast.Call(func=ast.Attribute(attr=method)) if method not in _METHODS:
                    return False
    return True


def rewritten(scan: Scan, number: int, loop: ast.For) -> list[ast.stmt]:
    """Return the statements that replace `loop`; their variables have `number` in their names."""
    begin, end, count, any_match = (f"_{name}_{number}" for name in ("begin", "end", "count", "any"))
    text = f"""
{count} = len({scan.queue})
{begin} = 0
while {begin} < {count}:
    {end} = min({begin} + {CHUNK}, {count})
    {any_match} = False
    for {scan.index} in range({begin}, {end}):
        {any_match} = {any_match} | (CONDITION)
    if {any_match}:
        for {scan.index} in range({begin}, {end}):
            if CONDITION:
                pass
    {begin} = {end}
"""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            ast.copy_location(node, loop)
    statements = tree.body
    chunks = statements[2]
    assert isinstance(chunks, ast.While)
    search, act = chunks.body[2], chunks.body[3]
    assert isinstance(search, ast.For)
    assert isinstance(act, ast.If)
    first = search.body[0]
    assert isinstance(first, ast.Assign)
    assert isinstance(first.value, ast.BinOp)
    first.value.right = _eager(copy.deepcopy(scan.condition), scan)
    inner = act.body[0]
    assert isinstance(inner, ast.For)
    inner.body = [ast.If(scan.condition, scan.body, [])]
    return statements


def _eager(node: ast.expr, scan: Scan) -> ast.expr:
    """Return the condition without short-circuits, and with rows read without a check of the index."""
    match node:
        case ast.BoolOp(op=op, values=values):
            eager = [_eager(value, scan) for value in values]
            joined = eager[0]
            for value in eager[1:]:
                joined = ast.BinOp(joined, ast.BitAnd() if isinstance(op, ast.And) else ast.BitOr(), value)
            return joined
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ast.UnaryOp(ast.Not(), _eager(operand, scan))
    return _Unchecked(scan).visit(node)


class _Unchecked(ast.NodeTransformer):
    def __init__(self, scan: Scan):
        self.scan = scan

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Return an unchecked read for `queue[index]`."""
        if not _is_row(node, self.scan):
            return node
        arguments: list[ast.expr] = [ast.Name(self.scan.queue, ast.Load()), ast.Name(self.scan.index, ast.Load())]
        return ast.Call(ast.Name("_queue_at", ast.Load()), arguments, [])
