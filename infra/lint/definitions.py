"""Rules for code that no other checker has: the length of a function, its parameters, and names that tell nothing.

Clippy checks the length and the parameters of Rust functions, so only the rule for names reads Rust.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from infra.lint.violation import Violation

TESTS = re.compile(r"(^|/)tests?(/|\.rs$)|(^|/)conftest\.py$")
MOST_LINES = 80
MOST_PARAMETERS = 8
# A reader cannot tell what a value is that was "found", or is "one". A name is a noun, or a verb for a function.
PARTICIPLES = frozenset({"found", "given", "asked", "made", "said", "told"})
PRONOUN = "one"

_RUST_NAME = re.compile(rf"(?<![\w\"'])_?({'|'.join(sorted({*PARTICIPLES, PRONOUN}))})\b")
_RUST_TEXT = re.compile(r"\"(\\.|[^\"\\])*\"|//.*")


def check(root: Path, paths: Iterable[str]) -> list[Violation]:
    """Checks the Python and Rust sources among files.

    Args:
        root: The root of the checkout.
        paths: Files, relative to it.
    """
    return [violation for path in paths for violation in _check_file(root, path)]


def _check_file(root: Path, path: str) -> Iterator[Violation]:
    if path.endswith(".rs"):
        yield from _rust_names(path, (root / path).read_text(encoding="utf-8"))
    elif path.endswith(".py"):
        try:
            tree = ast.parse((root / path).read_text(encoding="utf-8"))
        except SyntaxError:
            return  # ruff reports it
        yield from _names(path, tree)
        if not TESTS.search(path):
            yield from _functions(path, tree)


def _functions(path: str, tree: ast.Module) -> Iterator[Violation]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES:
                message = f"{node.name} has {lines} lines; split it into functions of at most {MOST_LINES}"
                yield Violation(path, node.lineno, "code/long-function", message)
            arguments = node.args
            count = len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])
            count += (arguments.vararg is not None) + (arguments.kwarg is not None)
            if count > MOST_PARAMETERS:
                message = f"{node.name} has {count} parameters, more than {MOST_PARAMETERS}: give some of them a class"
                yield Violation(path, node.lineno, "code/parameters", message)


def _names(path: str, tree: ast.Module) -> Iterator[Violation]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield from _name(path, node.lineno, name)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.MatchAs(name=str(name))
            ):
                yield from _name(path, node.lineno, name)


def _rust_names(path: str, text: str) -> Iterator[Violation]:
    for number, line in enumerate(text.splitlines(), 1):
        for match in _RUST_NAME.finditer(_RUST_TEXT.sub("", line)):
            yield from _name(path, number, match[0])


def _name(path: str, line: int, name: str) -> Iterator[Violation]:
    word = name.strip("_").lower()
    if word in PARTICIPLES:
        yield Violation(path, line, "code/participle", f"`{name}` is a participle: name the value by a noun")
    elif word == PRONOUN and not name.isupper():
        yield Violation(path, line, "code/one", f"`{name}` says nothing: name the value by the noun of what it is")
