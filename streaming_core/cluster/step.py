"""A step in a task: its operators on the runtime's executor `share`, with tables in and out."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_core import _runtime
from streaming_core.cluster.ranks import WORD, Ranks
from streaming_core.cluster.stages import Step
from streaming_core.data import rows as row_format
from streaming_core.data.arrow import to_arrow, to_numpy
from streaming_core.kernels.program import Program, with_functions
from streaming_core.language.operator import Operator
from streaming_core.language.record import visible
from streaming_core.run.failure import runtime_failures

STREAM = "stream"  # the column with the number of a row's stream, of a windowed operator with several
COUNT = np.uint64(127)  # the lowest bits of a rank of the runtime, which count the others


@dataclass(frozen=True)
class Outputs:
    """Output rows.

    Attributes:
        rows: `seq` and the fields of the record.
        positions: By row, the position of its input, or the number of the flushed key; shape (rows,).
        order: By row, its order among the outputs of the same input, in all tasks.
    """

    rows: pa.Table
    positions: np.ndarray
    order: Ranks


class Intake:
    """The input of an operator: it encodes tables as rows of the runtime."""

    def __init__(self, whole: Program, operator: Operator):
        """Resolve the records of the operator's streams."""
        self._records = [whole.bound.records[record] for record in operator.streams]
        strides = [record.event[1] for record in self._records]
        # The number of the stream is the last word of a row.
        self.stride = max(strides) if len(strides) == 1 else -(-max(strides) // 8) * 8 + 8

    def encode(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Rows of shape (n * stride,) as bytes, and their text with its padding.

        Args:
            table: `seq` and the fields; of several streams, `stream` and the fields as `column_of` names them.
        """
        if len(self._records) == 1:
            rows, text, _ = row_format.encode(table, self._records[0])
            return rows.view(np.uint8), text
        streams = to_numpy(table.column(STREAM))
        wide = np.zeros((table.num_rows, self.stride), np.uint8)
        wide[:, -8:].view("<u8")[:, 0] = streams
        texts, base = [], 0
        for number, record in enumerate(self._records):
            places = np.flatnonzero(streams == number)
            fields = visible(record.event[0])
            names = ["seq", *(column_of(number, name) for name in fields)]
            part = table.select(names).take(to_arrow(places)).rename_columns(["seq", *fields])
            rows, text, _ = row_format.encode(part.cast(record.arrow(("seq",))), record)
            for name in row_format.text_fields(record):
                rows[name]["offset"] += base
            wide[places, : rows.itemsize] = rows.view(np.uint8).reshape(len(rows), rows.itemsize)
            texts.append(text[: len(text) - row_format.TEXT_PADDING])
            base += len(texts[-1])
        return wide.reshape(-1), np.concatenate([*texts, np.zeros(row_format.TEXT_PADDING, np.uint8)])

    @property
    def columns(self) -> pa.Schema:
        """The columns of tables that `encode` takes, behind `seq`."""
        if len(self._records) == 1:
            return self._records[0].arrow()
        fields = [pa.field(STREAM, pa.int32())]
        for number, record in enumerate(self._records):
            fields += [pa.field(column_of(number, field.name), field.type) for field in record.arrow()]
        return pa.schema(fields)

    def table(self, table: pa.Table, stream: int) -> pa.Table:
        """The fields of rows of one stream, as `encode` takes them; `table` has `seq` and the fields of its record."""
        if len(self._records) == 1:
            return table
        columns = {"seq": table.column("seq"), STREAM: to_arrow(np.full(table.num_rows, stream, np.int32))}
        own = {column_of(stream, name): table.column(name) for name in table.column_names if name != "seq"}
        for field in self.columns:
            if field.name != STREAM:
                columns[field.name] = own.get(field.name, pa.nulls(table.num_rows, field.type))
        return pa.table(columns)


def column_of(stream: int, field: str) -> str:
    """The column of a field of one of several streams."""
    return f"{stream}_{field}"


def program_of(whole: Program, step: Step, intake: Intake) -> dict[str, Any]:
    """The program of a step (runtime/ABI.md), with the kernels of the whole application."""
    entries = {entry["name"]: entry for entry in whole.description["operators"]}
    operators = [copy.deepcopy(entries[operator.name]) for operator in step.operators]
    for number, entry in enumerate(operators):
        entry["inputs"] = [number - 1]
    if (window := step.operators[0].window) is not None:
        streams = len(window.states)
        operators[0]["inputs"] = [-1] * streams
        operators[0]["window"]["of"] = list(range(streams))
    return {
        "kind": "dataflow",
        "event": {"stride": intake.stride},
        "operators": operators,
        "outputs": [len(operators) - 1],
        "columns": whole.bound.records[step.operators[-1].emitted].layout,
    }


class Running:
    """A step at work on one share of the keys."""

    def __init__(self, whole: Program, step: Step, share: tuple[int, int] = (0, 1)):
        """Start the engine.

        Args:
            whole: The program of the application, which holds the kernels.
            step: The step.
            share: The number of the share, and the number of shares.
        """
        self._operator = step.operators[0]
        self._intake = Intake(whole, self._operator)
        self._output = whole.bound.records[step.operators[-1].emitted]
        self._kernels = whole
        self._texts = row_format.nameable_text() if whole.makes_texts else None
        program = with_functions(program_of(whole, step, self._intake))
        options = json.dumps({"executor": "share", "share": share})
        self._engine = _runtime.Engine(program, options, self._texts)

    def resume(self, images: Iterable[bytes], standing: str) -> None:
        """Go on from a checkpoint of the application, before the first row.

        Args:
            images: Those of the operator's state. The share leaves out the keys of other shares.
            standing: The position of the run (runtime/ABI.md).
        """
        for image in images:
            self._engine.restore(self._operator.name, image)
        self._engine.resume(standing)

    def process(self, table: pa.Table) -> Outputs:
        """Take rows in order; `table` is as `Intake.encode` takes it.

        Raises:
            RunFailed: The operator failed.
        """
        rows, text = self._intake.encode(table)
        if self._texts is not None:
            self._texts[: len(text)] = text
            text = self._texts[: len(text)]
        with runtime_failures():
            self._engine.process(rows, table.num_rows, text)
        return self._outputs(text if self._texts is None else self._texts)

    def finish(self, end: int) -> tuple[Outputs, pa.Table | None]:
        """End the stream.

        Args:
            end: The seq of the end.

        Returns:
            The outputs of the end, and the final state of an operator that exports one, by ascending key.
        """
        with runtime_failures():
            self._engine.finish(end)
            padding = np.zeros(row_format.TEXT_PADDING, np.uint8)
            outputs = self._outputs(padding if self._texts is None else self._texts)
            return outputs, self._state()

    def stop(self) -> dict[str, Any]:
        """End the engine; returns its figures (runtime/ABI.md)."""
        metrics = json.loads(self._engine.metrics())
        self._engine.stop()
        return metrics

    def _outputs(self, text: np.ndarray) -> Outputs:
        data, positions, count = self._engine.take_outputs()
        rows = np.frombuffer(data, dtype=self._output.dtype(header=True), count=count)
        table = row_format.decode(rows, text, self._output, np.zeros(count, np.uint32)).remove_column(1)
        ranks = np.frombuffer(self._engine.take_ranks(), ">u8").reshape(count, 2)
        return Outputs(table, np.frombuffer(positions, np.uint32), _order(ranks))

    def _state(self) -> pa.Table | None:
        if self._operator.state is None:
            return None
        keys, data = self._engine.states(0)
        record = self._kernels.bound.records[self._operator.state]
        return row_format.decode_state(data, record, row_format.decode_keys(keys))


class Dealing:
    """Deals the rows of an operator with keys to shares of these (`runtime/src/dataflow/share/dealer.rs`)."""

    def __init__(self, whole: Program, operator: Operator, shares: int):
        """Make a dealer. The rows of one dealer ascend."""
        self._intake = Intake(whole, operator)
        self._kernels = whole
        program = with_functions(program_of(whole, Step((operator,), ((-1, 0),)), self._intake))
        self._texts = row_format.nameable_text()
        self._dealer = _runtime.Dealer(program, shares, self._texts)

    def deal(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Positions of rows, and shares that need them; both of the same shape. `table` is as for `Intake.encode`."""
        rows, text = self._intake.encode(table)
        self._texts[: len(text)] = text
        text = self._texts[: len(text)]
        with runtime_failures():
            pairs = np.frombuffer(self._dealer.deal(rows, table.num_rows, text), "<u4").reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]


def _order(ranks: np.ndarray) -> Ranks:
    """The ranks of the runtime (runtime/src/dataflow/channel/rank.rs); uint64 of shape (rows, 2)."""
    high, low = (column.astype(np.uint64) for column in ranks.T)
    bits = (low & COUNT).astype(np.int64)
    words = [high, *([low & ~COUNT] if bits.max(initial=0) > WORD else [])]
    return Ranks(np.stack(words, axis=1), bits)
