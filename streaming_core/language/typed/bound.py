"""A bound application with the functions that its functions use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from streaming_core.language.bound import BoundApp
from streaming_core.language.record import Record
from streaming_core.language.typed.tree import Function


class Bound(BoundApp, ABC):
    """The objects that a function of the application can name. A subclass reads the functions.

    Attributes:
        makes_texts: Whether a function has texts that lie neither in events nor in states: literals, or built ones.
    """

    makes_texts = False

    def roles(self) -> list[Callable]:
        """The functions that the application declares for its operators."""
        return [function for operator in self.app.operators for function in operator.functions.values()]

    @abstractmethod
    def function(self, function: Callable, arguments: Iterable[Any], output: Record | None = None) -> Function:
        """`function`, typed at these argument types. `output`: the record that its `out.emit` makes.

        Raises:
            BadInput: it is not part of the language; the line says where and why.
        """
