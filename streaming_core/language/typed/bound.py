"""A bound application: the records with their sizes, parameters, side tables and functions that its functions use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from streaming_core.language import tables
from streaming_core.language.application import App, Constant
from streaming_core.language.record import Record, Resolved
from streaming_core.language.typed.tree import Function


class Bound(ABC):
    """The objects that a function of the application can name. A subclass reads the functions.

    Args:
        app: the application.
        params: its bound parameters.
    """

    def __init__(self, app: App, params: dict[str, Any]):
        self.app, self.params = app, params
        self._resolved: dict[Record, Resolved] = {}
        self._constants: dict[Constant, np.ndarray] = {}

    def resolved(self, declaration: Record) -> Resolved:
        """The record with its sizes; one object per record."""
        if declaration not in self._resolved:
            self._resolved[declaration] = declaration.resolve(self.params)
        return self._resolved[declaration]

    def constant(self, constant: Constant) -> np.ndarray:
        """A side table's values (int64 or float64)."""
        if constant not in self._constants:
            self._constants[constant] = tables.constant(self.app, constant, self.params)
        return self._constants[constant]

    def roles(self) -> list[Callable]:
        """The functions that the application declares for its operators."""
        return [function for operator in self.app.operators for function in operator.functions.values()]

    @abstractmethod
    def function(self, function: Callable, arguments: Iterable[Any], output: Record | None = None) -> Function:
        """`function`, typed at these argument types. `output`: the record that its `out.emit` makes.

        Raises:
            BadInput: it is not part of the language; the line says where and why.
        """
