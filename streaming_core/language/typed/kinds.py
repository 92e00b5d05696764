"""The types of expressions and variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming_core.language.application import Table
from streaming_core.language.lookup import Constant
from streaming_core.language.record import Resolved, Scalar, Slot, Text


@dataclass(frozen=True)
class Kind:
    """A type without parts."""

    name: str

    def __str__(self) -> str:
        return self.name


INT, FLOAT, BOOL, TEXT = Kind("an integer"), Kind("a float"), Kind("a boolean"), Kind("a text")
NONE, OUT, PLAN, POST = Kind("nothing"), Kind("an output"), Kind("a transaction"), Kind("the outcome of a transaction")
NUMBERS = (BOOL, INT, FLOAT)


@dataclass(frozen=True)
class RowKind:
    """A row, in one of these roles.

    | role | meaning | restriction |
    |---|---|---|
    | event | input row of an operator | read-only |
    | state | state of an operator | |
    | table | row of a condition or modification | |
    | joint | one of several rows that a condition or modification reads | no growing containers |
    | place | row that `txn.row` names | no access to fields |
    | result | result of `txn.read` | no containers |
    | key | key of a window | read-only |
    | queued | row in a queue | read-only |
    """

    resolved: Resolved
    role: str
    writable: bool = False
    table: Table | None = None

    def __str__(self) -> str:
        return f"a row of {self.resolved.name}"

    @property
    def slots(self) -> dict[str, Slot]:
        """Field layout in this role."""
        return (self.resolved.event if self.role == "event" else self.resolved.state)[0]


@dataclass(frozen=True)
class KeysKind:
    """The argument that collects the keys of a row."""

    resolved: Resolved

    def __str__(self) -> str:
        return "keys"


@dataclass(frozen=True)
class WindowKind:
    """A window of a key."""

    key: RowKind

    def __str__(self) -> str:
        return "a window"


@dataclass(frozen=True)
class ArrayKind:
    """An array field of a row."""

    item: Scalar
    count: int
    writable: bool
    where: str

    def __str__(self) -> str:
        return f"an array of {self.item.declared}"


@dataclass(frozen=True)
class BoxKind:
    """A container field of a row."""

    type: Any
    count: int
    writable: bool
    where: str

    def __str__(self) -> str:
        return f"a {type(self.type).__name__.lower()}"


@dataclass(frozen=True)
class TableKind:
    """A side table made by `@app.constant`."""

    constant: Constant
    item: Kind

    def __str__(self) -> str:
        return "a constant"


def loaded(scalar: Scalar | Text) -> Kind:
    """The type of a scalar or text after an operator loads it."""
    if isinstance(scalar, Text):
        return TEXT
    return FLOAT if scalar.is_float else BOOL if scalar.name == "boolean" else INT


def join(left: Any, right: Any) -> Any:
    """The type that both types fit in (boolean < integer < float); None if there is none."""
    if left in NUMBERS and right in NUMBERS:
        return max(left, right, key=NUMBERS.index)
    return left if left == right else None
