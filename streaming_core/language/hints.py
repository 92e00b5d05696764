"""Names for the annotations of operators: `def count(row: Click, state: Recent, out: Out[Ranked])`.

They mean nothing when an application runs. What checkers and editors read is in `streaming_core/api.pyi`.
"""

from __future__ import annotations

from typing import Any


class _Hint:
    def __class_getitem__(cls, record: Any) -> type[_Hint]:
        return cls


class Out(_Hint):
    """Where an operator emits rows of a record: `Out[Ranked]`."""


class Window(_Hint):
    """The window of an update or a result: `Window[Key]`, or `Window` if the key is a field."""


class Keys(_Hint):
    """Where a function adds the keys of a row: `Keys[Key]`."""


class Txn(_Hint):
    """The transaction of an event."""
