"""Functions of operators that Lockstep writes itself: those of streams, aggregates and joins.

`named` makes a function of a lambda.

No file holds them, but `inspect` finds their sources. So every reader treats them like functions of the application's
file.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import os
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language.declaration import NAME_RULE, caller, is_name

# Where the application declares what a function is written for, as `file.py:line`.
places: dict[Callable, str] = {}


def function(module: str, text: str, names: dict[str, Any] | None = None) -> Callable:
    """Compile a function from its source.

    Args:
        module: The module that the function appears to belong to.
        text: The source. The name of the function's file identifies this text.
        names: The objects that the function can use, by name.
    """
    compiled, frame = _compiled(text, "", {**(names or {}), "__name__": module}), caller()
    places[compiled] = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    return compiled


def source(head: str, body: list[str]) -> str:
    """The source of a function: its name with its arguments, and its lines."""
    return "\n".join([f"def {head}:", *indented(body), ""])


def indented(lines: list[str]) -> list[str]:
    """The lines of a block."""
    return [f"    {line}" for line in lines]


def like(function: Callable, text: str, line: int) -> Callable:
    """Compile a function that is a user's function in another form: it sees the same names, and has the same place.

    Args:
        function: The user's function.
        text: The source of the new one.
        line: The line of the file on which it begins.
    """
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    file = f"/{os.path.basename(function.__code__.co_filename)}"
    names = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
    return _compiled("\n" * (line - 1) + text, file, names)


def _compiled(text: str, file: str, namespace: dict[str, Any]) -> Callable:
    """Compile the function of a text, for a file whose name identifies the text."""
    name = text.lstrip("\n").partition("(")[0].removeprefix("def ")
    if not is_name(name):
        raise BadInput(f"invalid name {name!r} of an operator; {NAME_RULE}")
    file = f"<{name} {hashlib.sha256(text.encode()).hexdigest()[:8]}>{file}"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), namespace)
    compiled = namespace[name]
    assert callable(compiled)
    return compiled


def named(fn: Callable, name: str) -> Callable:
    """Return a lambda as a function of this name, in the same line of a file of the same name; any other as it is."""
    code, lines = fn.__code__, linecache.getlines(fn.__code__.co_filename)
    if fn.__name__ != "<lambda>":
        return fn
    places = [(line, column or 0) for line, _, column, end in code.co_positions() if line and column != end]
    try:
        lambdas = [node for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.Lambda)]
        node = min(
            (
                candidate
                for candidate in lambdas
                if all(map(_contains(candidate.body), places)) and candidate.lineno == code.co_firstlineno
            ),
            key=lambda candidate: (
                (candidate.body.end_lineno or 0) - candidate.body.lineno,
                (candidate.end_col_offset or 0) - candidate.col_offset,
            ),
        )
    except (SyntaxError, ValueError):
        raise BadInput(f"cannot read the source of the lambda for {name}; write a def") from None
    text = f"def {name}({ast.unparse(node.args)}): return {ast.unparse(node.body)}\n"
    file = f"<{hashlib.sha256(text.encode()).hexdigest()[:8]}>/{os.path.basename(code.co_filename)}"
    before = ["\n"] * (code.co_firstlineno - 1)
    linecache.cache[file] = len(text), None, [*before, text], file
    whole = compile("".join([*before, text]), file, "exec")
    body = next(constant for constant in whole.co_consts if isinstance(constant, CodeType))
    cells = zip(code.co_freevars, fn.__closure__ or (), strict=True)
    inside = {variable: cell.cell_contents for variable, cell in cells}
    return FunctionType(body, {**fn.__globals__, **inside} if inside else fn.__globals__, name)


def _contains(node: ast.expr) -> Callable[[tuple[int, int]], bool]:
    end = (node.end_lineno or 0, node.end_col_offset or 0)
    return lambda place: (node.lineno, node.col_offset) <= place < end
