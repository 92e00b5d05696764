"""A loop that is compiled: it runs events, and holds what came of them."""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba.core.errors import NumbaError

import streaming_core.api.wrapping  # noqa: F401 - the loop's integers wrap around too
from streaming_core.api.app import App, Operator, Table
from streaming_core.api.record import Array, Resolved, Text
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle.events import columns, seqs
from streaming_core.oracle.loop import checks, layout, maps, memory
from streaming_core.oracle.loop.columns import column_of, view, word_at
from streaming_core.oracle.loop.machine import Machine
from streaming_core.oracle.loop.source import Source
from streaming_core.oracle.typed import Program

_PADDING = 64  # readable bytes behind every text buffer


class Loop:
    """A bound application, compiled to run one event at a time on the calling thread.

    Attributes:
        seconds: time spent running, compiling and decoding excluded.
        running: makes a context for each time that the loop runs: who measures something else enters his own.
        compile_seconds: time spent compiling.
        digest: (rows, sum of hashes) of all outputs so far (digest.py).

    Raises:
        BadInput: an operator does not keep to the language, or the loop cannot be compiled from it.
    """

    def __init__(self, app: App, params: dict[str, Any]):
        started = time.perf_counter()
        self.app, self.program = app, Program(app.check(), params)
        self.event, self.output = self.program.resolved(app.event), self.program.resolved(app.outputs)
        self.output_schema = self.output.arrow(("seq", "sub"))
        self.operators = [o for o in app.operators if o.kind not in ("source", "sink")]
        self.event_dtype, self.output_dtype = self.event.dtype(True), self.output.dtype(True)
        self.events = 0
        self.seconds = 0.0
        self.running: Callable[[], AbstractContextManager] = nullcontext
        self.digest = (0, 0)
        # Behind the operators' emitters, one for each who takes several streams: what is merged for it.
        self.unions = [o for o in app.operators if len(o.inputs) > 1 or (o.kind == "sink" and not self._ends(o))]
        emitters = len(self.operators) + len(self.unions)
        self._context = np.zeros((layout.HEAD_BYTES + layout.EMITTER_BYTES * emitters) // 8, np.int64)
        self.ctx = self._context.ctypes.data
        self.keep: list[Any] = []
        self.sites: list[str] = ["?"]
        self.tables = {table: self._rows(table) for table in app.tables}
        self.maps: list[tuple[Operator, int]] = []
        memory.release(0)  # compiled now, because it is needed when nothing can be compiled any more
        memory.release_arena(self.ctx)
        weakref.finalize(self, _give_back, self._context, self.maps, self.keep, emitters)
        self._compile()
        self.compile_seconds = time.perf_counter() - started

    def _ends(self, sink: Operator) -> bool:
        """Whether the sink takes what the last operator puts out, and nobody else does."""
        return sink.inputs == self.operators[-1:] and not any(sink.inputs[0] in o.inputs for o in self.operators)

    def reset(self) -> None:
        """Back to the initial state, without compiling again."""
        for table, rows in self.tables.items():
            rows[:] = self._rows(table)
        for operator, table in self.maps:
            if operator.key is None:
                view(table, 8 * (self.program.resolved(operator.state).state[1] // 8))[:] = 0
            else:
                memory.release(word_at(table + layout.ENTRIES))
                view(table, layout.MAP_BYTES)[:] = 0
                self.open_map(operator, table)
        memory.release_arena(self.ctx)
        for word in (layout.REJECTED, layout.ARENA, layout.ARENA_LIMIT, layout.LAST, layout.NEXT_SUB):
            self._context[word // 8] = 0
        for i in range(len(self.operators)):
            view(self.emitter(i) + layout.DROPPED, 8)[:] = 0
        self.events, self.seconds, self.digest = 0, 0.0, (0, 0)

    def open_map(self, operator: Operator, table: int) -> None:
        """Makes an operator's empty map."""
        slot = self.program.resolved(operator.input).event[0][operator.key]
        state = self.program.resolved(operator.state).state[1]
        maps.map_open(table, state, 3 if isinstance(slot.type, Text) else 2)

    # --- running -----------------------------------------------------------------------------------------------------

    def process(self, events: pa.Table) -> pa.Table:
        """Runs a chunk of events; returns its outputs, in order.

        Raises:
            BadInput: a column is missing, has another type or nulls.
            RunFailed: an operator raised; the line names operator, event, error, file and line.
        """
        rows, text = self.decode(events)
        self.run(rows, text, keep=True)
        return self.outputs(text)

    def decode(self, events: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Event rows (structured) and the text beside them (bytes, padded)."""
        rows = np.zeros(events.num_rows, self.event_dtype)
        rows["seq"] = seqs(events)
        texts, at = [], 0
        for slot, column in columns(events, self.event):
            if isinstance(slot.type, Array):
                values = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, slot.count)
                rows[slot.name] = values
            elif isinstance(slot.type, Text):
                offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
                begin, end = (int(offsets[0]), int(offsets[-1])) if len(column) else (0, 0)
                data = column.buffers()[2]
                texts.append(np.frombuffer(data, np.uint8)[begin:end] if data else np.empty(0, np.uint8))
                if at + end - begin >= 1 << 32:
                    raise BadInput("events: a chunk holds 4 GiB of text or more; write smaller row groups")
                if len(column):
                    rows[slot.name]["offset"] = offsets[:-1].astype(np.int64) - begin + at
                    rows[slot.name]["length"] = np.diff(offsets)
                at += end - begin
            else:
                rows[slot.name] = column.to_numpy(zero_copy_only=False)
        return rows, np.concatenate([*texts, np.zeros(_PADDING, np.uint8)])

    def run(self, rows: np.ndarray, text: np.ndarray, keep: bool) -> float:
        """Runs decoded events; returns the seconds it took. `keep`: leave the output rows for `outputs`."""
        return self._timed(self._run, rows.ctypes.data, len(rows), text, keep, lambda: int(rows[0]["seq"]), len(rows))

    def finish(self, seq: int) -> pa.Table:
        """The end of the stream: flushes in topological order, keys ascending; returns what that put out."""
        text = np.zeros(_PADDING, np.uint8)
        if not any("flush" in o.functions for o in self.operators):
            return self.output_schema.empty_table()
        # Text keys live in the maps, not in a batch's text: a flush sees states only, which hold no text.
        self._context[layout.SEQ // 8] = seq
        orders = [self._ascending(o, table) for o, table in self.maps]
        addresses = np.array([a.ctypes.data for a in orders] or [0], np.int64)
        counts = np.array([len(a) for a in orders] or [0], np.int64)
        self._timed(self._flush, addresses.ctypes.data, counts.ctypes.data, text, True, None, 0)
        return self.outputs(text)

    def _timed(self, function: Any, a: int, b: int, text: np.ndarray, keep: bool, first: Any, events: int) -> float:
        self._context[layout.TEXT // 8] = text.ctypes.data
        self._context[layout.SITE // 8] = 0
        with self.running():
            started = time.perf_counter()
            done = function(self.ctx, a, b, keep)
            spent = time.perf_counter() - started
        if not done:
            site, error = divmod(int(self._context[layout.SITE // 8]), 16)
            if site == 0:
                raise RunFailed("out of memory")
            seq = self._context[layout.SEQ // 8]
            raise RunFailed(self.sites[site].format(seq=seq, error=checks.ERRORS[error]))
        count, digest = (int(self._context[word // 8]) for word in (layout.COUNT, layout.DIGEST))
        self.seconds += spent
        self.events += events
        self.digest = (self.digest[0] + count, (self.digest[1] + digest) % (1 << 64))
        self._count = count
        return spent

    # --- results -----------------------------------------------------------------------------------------------------

    @property
    def dropped_invalid(self) -> int:
        """Inputs declared invalid so far."""
        return sum(int(word_at(self.emitter(i) + layout.DROPPED)) for i in range(len(self.operators)))

    @property
    def rejected(self) -> int:
        """Transactions rejected so far."""
        return int(self._context[layout.REJECTED // 8])

    def outputs(self, text: np.ndarray) -> pa.Table:
        """The output rows of the last `run(..., keep=True)`."""
        n, stride = self._count, self.output_dtype.itemsize
        begin = int(self._context[layout.ROWS // 8])
        rows = view(begin, n * stride).view(self.output_dtype) if n else np.empty(0, self.output_dtype)
        subs = view(int(self._context[layout.SUBS // 8]), 4 * n).view(np.uint32) if n else np.empty(0, np.uint32)
        arrays = [pa.array(rows["seq"]), pa.array(subs.astype(np.int64))]
        for name, slot in self.output.event[0].items():
            arrays.append(column_of(rows[name], slot, text))
        return pa.Table.from_arrays(
            [a.cast(f.type) for a, f in zip(arrays, self.output_schema, strict=True)], schema=self.output_schema
        )

    def state(self) -> dict[str, pa.Table]:
        """Final tables by name, then keyed states by operator, ascending by key."""
        found = {}
        for table, rows in self.tables.items():
            keys = pa.array(np.arange(len(rows), dtype=np.int64))
            found[table.name] = self._states_table(self.program.resolved(table.row), rows, keys)
        for operator, table in self.maps:
            resolved = self.program.resolved(operator.state)
            dtype = resolved.dtype(False)
            if operator.key is None:
                rows = view(table, dtype.itemsize).view(dtype).copy()
                found[operator.name] = self._states_table(resolved, rows, None)
                continue
            text, addresses = self._entries(operator, table)
            rows = np.zeros(len(addresses), dtype)
            maps.copy_states(table, addresses, 24 if text else 16, rows.ctypes.data)
            found[operator.name] = self._states_table(resolved, rows, self._keys(text, addresses))
        return found

    def _entries(self, operator: Operator, table: int) -> tuple[bool, np.ndarray]:
        """Whether keys are text; entries in use, ascending by key."""
        text = isinstance(self.program.resolved(operator.input).event[0][operator.key].type, Text)
        addresses = np.empty(int(word_at(table + layout.USED)), np.int64)
        maps.entries_in_use(table, 0 if text else 8, addresses)
        order = pc.sort_indices(self._keys(text, addresses)).to_numpy()
        return text, np.ascontiguousarray(addresses[order])

    def _keys(self, text: bool, addresses: np.ndarray) -> pa.Array:
        if not text:
            keys = np.empty(len(addresses), np.int64)
            maps.copy_integer_keys(addresses, keys)
            return pa.array(keys)
        offsets = np.zeros(len(addresses) + 1, np.int64)
        total = maps.copy_text_keys(addresses, offsets, 0)
        data = np.empty(total + 1, np.uint8)
        maps.copy_text_keys(addresses, offsets, data.ctypes.data)
        large = pa.Array.from_buffers(
            pa.large_binary(), len(addresses), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        return large.cast(pa.binary())

    def _ascending(self, operator: Operator, table: int) -> np.ndarray:
        """Addresses of an operator's states, ascending by key."""
        if operator.key is None:
            return np.array([table], np.int64)
        text, addresses = self._entries(operator, table)
        if word_at(table + layout.INSIDE):
            return addresses + (24 if text else 16)
        return np.array([word_at(int(a) + (24 if text else 16)) for a in addresses], np.int64)

    def _states_table(self, resolved: Resolved, rows: np.ndarray, keys: pa.Array | None) -> pa.Table:
        schema = resolved.arrow()
        arrays = [column_of(rows[n], s, None).cast(schema.field(n).type) for n, s in resolved.state[0].items()]
        fields = list(schema)
        if keys is not None:
            fields.insert(0, pa.field("key", keys.type, nullable=False))
            arrays.insert(0, keys)
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def _rows(self, table: Table) -> np.ndarray:
        rows = np.zeros(self.program.size(table), self.program.resolved(table.row).dtype(False))
        for name, column in self.program.initial(table).items():
            rows[name] = column
        return rows

    # --- compiling ---------------------------------------------------------------------------------------------------

    def emitter(self, i: int) -> int:
        """Address of the emitter of operator i."""
        return self.ctx + layout.HEAD_BYTES + layout.EMITTER_BYTES * i

    def _compile(self) -> None:
        for operator in self.operators:
            if operator.kind == "windowed":
                raise BadInput(f"operator {operator.name}: windowed operators have no oracle yet")
        source = Source(self)
        calls, flushes = [], []
        for i, operator in enumerate(self.operators):
            call, flush = source.operator(i, operator)
            calls.append(call)
            flushes.append(flush)
        source.sink(self.output)
        for i, operator in enumerate(self.unions):
            source.union(i, operator)
        source.driver(calls, flushes)
        text = source.source()
        namespace = source.namespace
        try:
            exec(compile(text, "<compiled loop>", "exec"), namespace)
            self._run = Machine(namespace["_run"], 4)
            if any("flush" in o.functions for o in self.operators):
                self._flush = Machine(namespace["_flush"], 4)
        except NumbaError as error:
            lines = [re.sub(r"\x1b\[\d+m", "", line).strip() for line in str(error).splitlines()]
            reason = next((line for line in lines if line and not line.startswith("Failed in")), "unknown error")
            raise BadInput(f"app {self.app.name}: the compiled loop does not compile: {reason}") from None


def _give_back(context: np.ndarray, maps: list[tuple[Operator, int]], keep: list, emitters: int) -> None:
    """Frees what a loop has allocated; `keep` holds the blocks that the maps begin in."""
    ctx = context.ctypes.data
    memory.release_arena(ctx)
    blocks = [ctx + layout.HEAD_BYTES + layout.EMITTER_BYTES * i + layout.BEGIN for i in range(emitters)]
    blocks += [ctx + layout.SUBS, ctx + layout.RESULTS]
    blocks += [table + layout.ENTRIES for operator, table in maps if operator.key is not None]
    for block in blocks:
        memory.release(word_at(block))
