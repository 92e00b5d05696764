"""An application bound to its parameters, once for all that work on it.

The oracle and the kernel compiler share it, because it is bookkeeping: sizes of records and tables, numbers of windows,
values of constants.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from streaming_core.language import tables
from streaming_core.language.application import App
from streaming_core.language.lookup import Constant
from streaming_core.language.operator import Operator
from streaming_core.language.record import Nullable, Queue, Record, Resolved
from streaming_core.language.source import named
from streaming_core.language.window import Bounds


class Records(dict[Record, Resolved]):
    """The records of an application with their sizes; one object per record."""

    def __init__(self, params: dict[str, Any]):
        super().__init__()
        self._params = params

    def __missing__(self, record: Record) -> Resolved:
        self[record] = record.resolve(self._params)
        return self[record]


class BoundApp:
    """An application under fixed parameters.

    Attributes:
        app: The application.
        params: Its bound parameters.
        records: Its records, resolved.
        event: The record of the events.
        output: The record of what arrives at the sink.
        tables: Its tables, by number.

    Raises:
        BadInput: The number of a table's rows, or its way to look them up, is invalid.
    """

    def __init__(self, app: App, params: dict[str, Any]):
        self.app, self.params = app, params
        self.records = Records(params)
        self.event, self.output = self.records[app.event], self.records[app.outputs]
        self.tables = [tables.BoundTable(app.name, table, self.records[table.row], params) for table in app.tables]

    @cached_property
    def nullable(self) -> set[str]:
        """The names of the fields that may be null, in any record of the operators."""
        records = [
            record for o in self.app.operators for record in (o.output, o.state, *(o.window.states if o.window else ()))
        ]
        kinds = [pair for record in records if record is not None for pair in record.fields.items()]
        kinds += [pair for _, kind in kinds if isinstance(kind, Queue) for pair in kind.item.fields.items()]
        return {name for name, kind in kinds if isinstance(kind, Nullable)}

    @cached_property
    def windows(self) -> dict[Operator, Bounds]:
        """The numbers of each windowed operator. Raises BadInput if one is invalid."""
        return {
            operator: operator.window.bound(named(next(iter(operator.functions.values()))), self.params)
            for operator in self.app.operators
            if operator.window is not None
        }

    @cached_property
    def constants(self) -> dict[Constant, Any]:
        """The values of the side tables: int64, float64, or a text. Raises BadInput if one is invalid."""
        return tables.constants(self.app, self.params)
