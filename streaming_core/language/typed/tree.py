"""The typed tree: functions, and the nodes that their bodies consist of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Node:
    """An expression or statement: operation, type, operands, and whatever else the operation needs."""

    op: str
    kind: Any
    args: list[Any] = field(default_factory=list)
    data: Any = None
    line: int = 0


@dataclass(eq=False)
class Function:
    """One function at one combination of argument types."""

    name: str
    file: str
    line: int
    parameters: list[tuple[str, Any]]
    body: list[Node] = field(default_factory=list)
    kind: Any = None
    variables: dict[str, Any] = field(default_factory=dict)


def within(parts: list[Any]) -> Iterator[Node]:
    """Statements and expressions, and everything in them."""
    for part in parts:
        if isinstance(part, list):
            yield from within(part)
        else:
            yield part
            yield from within(part.args)
