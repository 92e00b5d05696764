"""The branches of operators: those that exist, and those that interpreters reach.

A branch is one outcome of a condition: of an `if` (with or without `else`), of a `while`, of a conditional expression.
So is each outcome of a part of an `and` or `or`. A `for` loop has two as well: its body runs, or it does not run at
all. A comparison such as `<` has a branch of its own for equal values, because many faults show only there.

Interpreters count only if they are made inside `counted`. The source of all others has no trace of it.
"""

from __future__ import annotations

import hashlib
import operator
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming_core.language.typed.tree import Function, Node
from streaming_core.oracle.interpreter.source import Source

_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_OUTCOMES = {"for": ("does not run", "runs"), "split": ("does not run", "runs")}


@dataclass(frozen=True)
class Branch:
    """One outcome of a condition, or of a loop.

    Attributes:
        function: The name of its function.
        file: The file of the function.
        line: The line in the file.
        outcome: `true` or `false`; of a loop: `runs` or `does not run`; of a comparison: `equal`.
    """

    function: str
    file: str
    line: int
    outcome: str

    @property
    def place(self) -> tuple[str, int, str]:
        """Where the branch stands, for sorting."""
        return self.file, self.line, self.outcome

    def __str__(self) -> str:
        """The branch in one line: file, line, function and outcome."""
        return f"{Path(self.file).name}:{self.line} ({self.function}): {self.outcome}"


@dataclass
class Branches:
    """The branches of the interpreters that a block makes.

    Attributes:
        known: All branches, by number. A number follows from the name of the function and the position in it.
        reached: The numbers of those that events have reached.
    """

    known: dict[int, Branch] = field(default_factory=dict)
    reached: set[int] = field(default_factory=set)

    def side(self, numbers: tuple[int, int], value: Any) -> Any:
        """Count the outcome of a condition or of a loop; returns the value."""
        self.reached.add(numbers[bool(value)])
        return value

    def compare(self, number: int, left: Any, sign: str, right: Any) -> bool:
        """Compare two numbers, and count whether they are equal."""
        if left == right:
            self.reached.add(number)
        return _SIGNS[sign](left, right)


_COUNTING: ContextVar[Branches | None] = ContextVar("branches", default=None)


@contextmanager
def counted() -> Iterator[Branches]:
    """Let the interpreters that the block makes count their branches."""
    branches = Branches()
    token = _COUNTING.set(branches)
    try:
        yield branches
    finally:
        _COUNTING.reset(token)


def source(*about: Any) -> Source:
    """Return what prints the functions of an operator; it counts branches if a block says so."""
    branches = _COUNTING.get()
    return Source(*about) if branches is None else _Counting(branches, *about)


class _Counting(Source):
    """Prints functions that count their branches."""

    def __init__(self, branches: Branches, *about: Any):
        super().__init__(*about)
        self.branches = branches
        self.namespace |= {"_side": branches.side, "_compare": branches.compare}
        self.places: Counter[tuple[Function, int, str]] = Counter()  # branches so far, by function, line and outcome

    def decided(self, node: Node, value: str) -> str:
        """Return the value of a condition or of a loop, which counts its outcome."""
        numbers = tuple(self.number(node, outcome) for outcome in _OUTCOMES.get(node.op, ("false", "true")))
        return f"_side({numbers}, {value})"

    def e_compare(self, node: Node) -> str:
        """Return a comparison, which counts equal values."""
        if node.data not in _SIGNS:
            return super().e_compare(node)
        left, right = self.operands(node)
        return f"_compare({self.number(node, 'equal')}, {left}, {node.data!r}, {right})"

    def number(self, node: Node, outcome: str) -> int:
        """Return the number of a new branch."""
        function, line = self.function, node.line or self.line
        assert function is not None
        self.places[function, line, outcome] += 1
        place = f"{function.name} {line - function.line} {self.places[function, line, outcome]} {outcome}"
        number = int.from_bytes(hashlib.blake2b(place.encode(), digest_size=6).digest())
        self.branches.known[number] = Branch(function.name, function.file, line, outcome)
        return number
