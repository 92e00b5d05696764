"""The compiled sequential loop: the same meaning on one thread, for large workloads and as the yardstick of speed.

The typed functions of an application are printed as code over addresses and compiled by numba: one loop per operator
over a few hundred events at a time, so that what operators hand on stays in the nearest cache; a transaction's plan,
state access and post-processing are one function. Timed: from decoded rows to encoded output rows and their digest.
State lies in plain arrays (tables) and in maps of the loop's own (memory.py).
"""

from __future__ import annotations

import os
import re
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types
from numba.core.errors import NumbaError

import streaming_core.api.wrapping  # noqa: F401 - the loop's integers wrap around too
from streaming_core.api.app import App, Operator, Table
from streaming_core.api.record import Array, Counter, Map, Resolved, Ring, Scalar, Set, Text, TopK
from streaming_core.digest import K1, K2, SEED
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle import memory
from streaming_core.oracle.interpreter import checked_column
from streaming_core.oracle.printer import FLOAT, HIGH, INT, LOW, Printer
from streaming_core.oracle.typed import PLAN, POST, Function, Node, Program, RowKind

_SLICE = 512  # events an operator takes in before the next one does
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
        self._context = np.zeros((memory.HEAD_BYTES + memory.EMITTER_BYTES * emitters) // 8, np.int64)
        self.ctx = self._context.ctypes.data
        self._keep: list[Any] = []
        self.sites: list[str] = ["?"]
        self.tables = {table: self._rows(table) for table in app.tables}
        self._maps: list[tuple[Operator, int]] = []
        memory.release(0)  # compiled now, because it is needed when nothing can be compiled any more
        memory.release_arena(self.ctx)
        weakref.finalize(self, _give_back, self._context, self._maps, self._keep, emitters)
        self._compile()
        self.compile_seconds = time.perf_counter() - started

    def _ends(self, sink: Operator) -> bool:
        """Whether the sink takes what the last operator puts out, and nobody else does."""
        return sink.inputs == self.operators[-1:] and not any(sink.inputs[0] in o.inputs for o in self.operators)

    def reset(self) -> None:
        """Back to the initial state, without compiling again."""
        for table, rows in self.tables.items():
            rows[:] = self._rows(table)
        for operator, table in self._maps:
            if operator.key is None:
                view(table, 8 * (self.program.resolved(operator.state).state[1] // 8))[:] = 0
            else:
                memory.release(memory_word(table + memory.ENTRIES))
                view(table, memory.MAP_BYTES)[:] = 0
                self._open(operator, table)
        memory.release_arena(self.ctx)
        for word in (memory.REJECTED, memory.ARENA, memory.ARENA_LIMIT, memory.LAST, memory.NEXT_SUB):
            self._context[word // 8] = 0
        for i in range(len(self.operators)):
            view(self.emitter(i) + memory.DROPPED, 8)[:] = 0
        self.events, self.seconds, self.digest = 0, 0.0, (0, 0)

    def _open(self, operator: Operator, table: int) -> None:
        """Makes an operator's empty map."""
        slot = self.program.resolved(operator.input).event[0][operator.key]
        state = self.program.resolved(operator.state).state[1]
        memory.map_open(table, state, 3 if isinstance(slot.type, Text) else 2)

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
        seq = checked_column(events, "seq", pa.int64()).to_numpy()
        if len(seq) and (seq[0] < 0 or (np.diff(seq) < 0).any()):
            raise BadInput("events: seq must ascend from 0 or above")
        rows["seq"] = seq
        texts, at = [], 0
        for name, slot in self.event.event[0].items():
            wanted = slot.type.arrow(slot.count) if isinstance(slot.type, Array) else slot.type.arrow()
            column = checked_column(events, name, wanted)
            if isinstance(slot.type, Array):
                values = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, slot.count)
                rows[name] = values
            elif isinstance(slot.type, Text):
                offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
                begin, end = (int(offsets[0]), int(offsets[-1])) if len(column) else (0, 0)
                data = column.buffers()[2]
                texts.append(np.frombuffer(data, np.uint8)[begin:end] if data else np.empty(0, np.uint8))
                if at + end - begin >= 1 << 32:
                    raise BadInput("events: a chunk holds 4 GiB of text or more; write smaller row groups")
                if len(column):
                    rows[name]["offset"] = offsets[:-1].astype(np.int64) - begin + at
                    rows[name]["length"] = np.diff(offsets)
                at += end - begin
            else:
                rows[name] = column.to_numpy(zero_copy_only=False)
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
        self._context[memory.SEQ // 8] = seq
        orders = [self._ascending(o, table) for o, table in self._maps]
        addresses = np.array([a.ctypes.data for a in orders] or [0], np.int64)
        counts = np.array([len(a) for a in orders] or [0], np.int64)
        self._timed(self._flush, addresses.ctypes.data, counts.ctypes.data, text, True, None, 0)
        return self.outputs(text)

    def _timed(self, function: Any, a: int, b: int, text: np.ndarray, keep: bool, first: Any, events: int) -> float:
        self._context[memory.TEXT // 8] = text.ctypes.data
        self._context[memory.SITE // 8] = 0
        with self.running():
            started = time.perf_counter()
            done = function(self.ctx, a, b, keep)
            spent = time.perf_counter() - started
        if not done:
            site, error = divmod(int(self._context[memory.SITE // 8]), 16)
            if site == 0:
                raise RunFailed("out of memory")
            seq = self._context[memory.SEQ // 8]
            raise RunFailed(self.sites[site].format(seq=seq, error=memory.ERRORS[error]))
        count, digest = (int(self._context[word // 8]) for word in (memory.COUNT, memory.DIGEST))
        self.seconds += spent
        self.events += events
        self.digest = (self.digest[0] + count, (self.digest[1] + digest) % (1 << 64))
        self._count = count
        return spent

    # --- results -----------------------------------------------------------------------------------------------------

    @property
    def dropped_invalid(self) -> int:
        """Inputs declared invalid so far."""
        return sum(int(memory_word(self.emitter(i) + memory.DROPPED)) for i in range(len(self.operators)))

    @property
    def rejected(self) -> int:
        """Transactions rejected so far."""
        return int(self._context[memory.REJECTED // 8])

    def outputs(self, text: np.ndarray) -> pa.Table:
        """The output rows of the last `run(..., keep=True)`."""
        n, stride = self._count, self.output_dtype.itemsize
        begin = int(self._context[memory.ROWS // 8])
        rows = view(begin, n * stride).view(self.output_dtype) if n else np.empty(0, self.output_dtype)
        subs = view(int(self._context[memory.SUBS // 8]), 4 * n).view(np.uint32) if n else np.empty(0, np.uint32)
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
        for operator, table in self._maps:
            resolved = self.program.resolved(operator.state)
            dtype = resolved.dtype(False)
            if operator.key is None:
                rows = view(table, dtype.itemsize).view(dtype).copy()
                found[operator.name] = self._states_table(resolved, rows, None)
                continue
            text, addresses = self._entries(operator, table)
            rows = np.zeros(len(addresses), dtype)
            memory.copy_states(table, addresses, 24 if text else 16, rows.ctypes.data)
            found[operator.name] = self._states_table(resolved, rows, self._keys(text, addresses))
        return found

    def _entries(self, operator: Operator, table: int) -> tuple[bool, np.ndarray]:
        """Whether keys are text; entries in use, ascending by key."""
        text = isinstance(self.program.resolved(operator.input).event[0][operator.key].type, Text)
        addresses = np.empty(int(memory_word(table + memory.USED)), np.int64)
        memory.entries_in_use(table, 0 if text else 8, addresses)
        order = pc.sort_indices(self._keys(text, addresses)).to_numpy()
        return text, np.ascontiguousarray(addresses[order])

    def _keys(self, text: bool, addresses: np.ndarray) -> pa.Array:
        if not text:
            keys = np.empty(len(addresses), np.int64)
            memory.copy_integer_keys(addresses, keys)
            return pa.array(keys)
        offsets = np.zeros(len(addresses) + 1, np.int64)
        total = memory.copy_text_keys(addresses, offsets, 0)
        data = np.empty(total + 1, np.uint8)
        memory.copy_text_keys(addresses, offsets, data.ctypes.data)
        large = pa.Array.from_buffers(
            pa.large_binary(), len(addresses), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        return large.cast(pa.binary())

    def _ascending(self, operator: Operator, table: int) -> np.ndarray:
        """Addresses of an operator's states, ascending by key."""
        if operator.key is None:
            return np.array([table], np.int64)
        text, addresses = self._entries(operator, table)
        if memory_word(table + memory.INSIDE):
            return addresses + (24 if text else 16)
        return np.array([memory_word(int(a) + (24 if text else 16)) for a in addresses], np.int64)

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
        return self.ctx + memory.HEAD_BYTES + memory.EMITTER_BYTES * i

    def _compile(self) -> None:
        for operator in self.operators:
            if operator.kind == "windowed":
                raise BadInput(f"operator {operator.name}: windowed operators have no oracle yet")
        source = _Source(self)
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
            self._run = memory.Machine(namespace["_run"], 4)
            if any("flush" in o.functions for o in self.operators):
                self._flush = memory.Machine(namespace["_flush"], 4)
        except NumbaError as error:
            lines = [re.sub(r"\x1b\[\d+m", "", line).strip() for line in str(error).splitlines()]
            reason = next((line for line in lines if line and not line.startswith("Failed in")), "unknown error")
            raise BadInput(f"app {self.app.name}: the compiled loop does not compile: {reason}") from None


def _give_back(context: np.ndarray, maps: list[tuple[Operator, int]], keep: list, emitters: int) -> None:
    """Frees what a loop has allocated; `keep` holds the blocks that the maps begin in."""
    ctx = context.ctypes.data
    memory.release_arena(ctx)
    blocks = [ctx + memory.HEAD_BYTES + memory.EMITTER_BYTES * i + memory.BEGIN for i in range(emitters)]
    blocks += [ctx + memory.SUBS, ctx + memory.RESULTS]
    blocks += [table + memory.ENTRIES for operator, table in maps if operator.key is not None]
    for block in blocks:
        memory.release(memory_word(block))


def memory_word(address: int) -> int:
    """The int64 at an address."""
    return int(view(address, 8).view(np.int64)[0])


def view(address: int, size: int) -> np.ndarray:
    """`size` bytes of raw memory."""
    return np.ctypeslib.as_array(_pointer(address), (size,)) if size else np.empty(0, np.uint8)


def _pointer(address: int) -> Any:
    import ctypes

    return ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))


# --- rows to columns -------------------------------------------------------------------------------------------------


def column_of(values: np.ndarray, slot: Any, text: np.ndarray | None) -> pa.Array:
    """One field of rows as an arrow array (copied)."""
    match slot.type:
        case Scalar(name="boolean"):
            return pa.array(values != 0)
        case Scalar():
            return pa.array(np.ascontiguousarray(values))
        case Text():
            lengths = values["length"].astype(np.int64)
            offsets = np.zeros(len(values) + 1, np.int64)
            np.cumsum(lengths, out=offsets[1:])
            data = np.empty(int(offsets[-1]) + 1, np.uint8)
            begins = np.ascontiguousarray(values["offset"].astype(np.int64)) + text.ctypes.data
            memory_gather(begins, offsets, data)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            return pa.Array.from_buffers(pa.large_binary(), len(values), buffers).cast(pa.binary())
        case Array(item):
            flat = np.ascontiguousarray(values).reshape(-1)
            inner = pa.array(flat != 0) if item.name == "boolean" else pa.array(flat)
            return pa.FixedSizeListArray.from_arrays(inner, slot.count)
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), slot.size)
    if isinstance(slot.type, Ring):
        return _rings(raw, slot.type.item, slot.count)
    return _boxes(raw, slot.type)


def _rings(raw: np.ndarray, item: Scalar, capacity: int) -> pa.Array:
    heads = raw[:, :8].copy().view(np.uint32).astype(np.int64)
    items = np.ascontiguousarray(raw[:, 8 : 8 + capacity * item.width]).view(item.dtype).reshape(len(raw), capacity)
    positions = np.arange(capacity)
    order = (heads[:, :1] + positions) % capacity
    values = np.take_along_axis(items, order, 1)[positions < heads[:, 1:2]]
    return _lists(heads[:, 1], pa.array(values != 0) if item.name == "boolean" else pa.array(values))


def _lists(lengths: np.ndarray, values: pa.Array) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _boxes(raw: np.ndarray, kind: Any) -> pa.Array:
    heads = raw[:, :16].copy().view(np.int64)
    lengths = heads[:, 1] & 0xFFFFFFFF
    pairs = [
        view(int(a), 16 * int(n)).view(np.int64).reshape(-1, 2) for a, n in zip(heads[:, 0], lengths, strict=True) if n
    ]
    keys, values = np.concatenate([*pairs, np.empty((0, 2), np.int64)]).T.copy()
    match kind:
        case Set(item):
            return _lists(lengths, pa.array(keys.astype(item.dtype) if item.name != "boolean" else keys != 0))
        case Map(key, value):
            held = (
                values.view(np.float64)
                if value.is_float
                else values != 0
                if value.name == "boolean"
                else values.astype(value.dtype)
            )
            fields = {"key": keys != 0 if key.name == "boolean" else keys.astype(key.dtype), "value": held}
        case Counter(key):
            fields = {"key": keys != 0 if key.name == "boolean" else keys.astype(key.dtype), "value": values}
        case TopK():
            fields = {"key": keys, "score": values}
    return _lists(lengths, pa.StructArray.from_arrays([pa.array(v) for v in fields.values()], names=list(fields)))


@memory.compiled
def memory_gather(begins, offsets, data):
    """Copies the texts at `begins` behind each other."""
    for i in range(begins.size):
        memory_copy(data.ctypes.data + offsets[i], begins[i], offsets[i + 1] - offsets[i])


memory_copy = memory.copy_bytes


# --- printing --------------------------------------------------------------------------------------------------------


class _Source(Printer):
    """Prints the loop of one application."""

    def __init__(self, loop: Loop):
        super().__init__()
        self.loop = loop
        self.namespace: dict[str, Any] = {
            **{f"_{name}": getattr(memory, name) for name in _WORDS},
            "_compiled": memory.internal, "_int": types.int64, "_float": types.float64, "_u64": types.uint64,
            "_nan": float("nan"), "_inf": float("inf"), "min": min, "max": max, "abs": abs, "range": range, "len": len,
        }  # fmt: skip
        self.finished: list[tuple[int, str, int]] = []
        self.operator_name, self.emitter = "?", 0
        self.read_fields: dict[int, set[str]] = {}
        # A plan is printed once, or as several passes: "drops" finds out whether it drops the event, then come its
        # "conditions", then its "operations".
        self.phase = "whole"
        self.plans: list[Function] = []
        # A plan's own variables tell whether its conditions hold and how many reads it has made. When functions that it
        # calls have conditions and operations too, the context does.
        self.shared = False
        self.middles: dict[str, Node] = {}

    def source(self) -> str:
        self.lines = self.finished
        return super().source()

    def keep(self, hint: str, value: Any) -> str:
        """The name under which the printed code finds an object."""
        name = f"_{hint}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def site(self, line: int) -> int:
        """A number for an operation that may fail here."""
        assert self.function is not None
        place = f"{os.path.basename(self.function.file)}:{line or self.line}".replace("{", "{{").replace("}", "}}")
        self.loop.sites.append(f"operator {self.operator_name}, event {{seq}}: {{error}} ({place})")
        return len(self.loop.sites) - 1

    def load(self, scalar: Scalar, address: str) -> str:
        name = f"_load_{scalar.name}"
        self.namespace.setdefault(name, memory.loader(scalar))
        return f"{name}({address})"

    def store(self, scalar: Scalar, address: str, value: str) -> str:
        name = f"_store_{scalar.name}"
        self.namespace.setdefault(name, memory.storer(scalar))
        return f"{name}({address}, {value})"

    def function_name(self, function: Function, suffix: str = "") -> str:
        """Prints a function once per operator; returns its name."""
        key = (function, self.emitter, suffix)
        if key not in self.names:
            name = self.names[key] = f"_f{len(self.names)}_{function.name}"
            outer = self.lines, self.function, self.indent, getattr(self, "line", 0)
            self.lines, self.function, self.indent = [], function, 0
            self.add("@_compiled")
            self.add(f"def {name}({', '.join(['_ctx', *(n for n, _ in function.parameters)])}):")
            self.indent = 1
            for parameter, given in function.parameters:
                wanted = function.variables[parameter]
                if wanted != given:
                    self.add(f"{parameter} = {self.convert(parameter, given, wanted)}")
            planned = function in self.plans
            if planned:
                held = "txn_ok" if suffix == "operations" else "True"
                self.add(f"_put(_ctx + {memory.HOLDS}, _int({held}))" if self.shared else f"_ok = {held}")
                self.add(f"_put(_ctx + {memory.READS}, 0)" if self.shared else "_reads = 0")
            self.indent = 0
            self.block(function.body)
            if planned:
                self.indent = 1
                self.add(f"return {self.status()}")
            self.finished += self.lines
            self.lines, self.function, self.indent, self.line = outer
        return self.names[key]

    # --- operators

    def operator(self, i: int, operator: Operator) -> tuple[str, str]:
        """Prints operator i; returns what the driver says for a slice of events, and for the flush."""
        program, loop = self.loop.program, self.loop
        self.operator_name, self.emitter = operator.name, loop.emitter(i)
        stride = program.resolved(operator.input).event[1]
        name, flush = f"_operator_{i}", ""
        if operator.kind == "transaction":
            body = self.transaction(operator)
        elif operator.kind == "stateless":
            function, work = self.function_name(program.operator(operator, "map")), ""
            body = []
            if operator.scratch is not None:
                block = np.zeros(program.resolved(operator.scratch).state[1] // 8, np.int64)
                loop._keep.append(block)
                work = f" {block.ctypes.data},"
                body = [f"_wipe({block.ctypes.data}, {block.nbytes})"]
            body.append(f"{function}(_ctx, _row,{work} 0)")
        else:
            function = self.function_name(program.operator(operator, "process"))
            state = program.resolved(operator.state).state[1]
            if operator.key is None:
                block = np.zeros(state // 8, np.int64)
                loop._keep.append(block)
                table = block.ctypes.data
                find = str(table)
            else:
                block = np.zeros(memory.MAP_BYTES // 8, np.int64)
                loop._keep.append(block)
                table = block.ctypes.data
                slot = program.resolved(operator.input).event[0][operator.key]
                loop._open(operator, table)
                if isinstance(slot.type, Text):
                    find = f"_text_state(_ctx, {table}, {self.text_at('_row', slot.offset)})"
                else:
                    key = self.load(slot.type, f"_row + {slot.offset}")
                    find = f"_integer_state(_ctx, {table}, _int({key}))"
            loop._maps.append((operator, table))
            body = [f"{function}(_ctx, _row, {find}, 0)"]
            if "flush" in operator.functions:
                flushed = self.function_name(program.operator(operator, "flush"))
                flush = f"_flush_{i}"
                self.finished += [
                    (0, "@_compiled", 0), (0, f"def {flush}(_ctx, states, n):", 0), (1, "for j in range(n):", 0),
                    (2, f"{flushed}(_ctx, _get(states + 8 * j), 0)", 0),
                ]  # fmt: skip
        self.finished += [
            (0, "@_compiled", 0),
            (0, f"def {name}(_ctx, rows, n):", 0),
            (1, "for j in range(n):", 0),
            (2, f"_row = rows + j * {stride}", 0),
            (2, f"_put(_ctx + {memory.SEQ}, _get(_row))", 0),
            *((2, line, 0) for line in body),
        ]
        return name, flush

    def transaction(self, operator: Operator) -> list[str]:
        """One event: conditions on the state before it, operations in program order, post-processing."""
        program, loop = self.loop.program, self.loop
        self.read_fields = {t.index: set() for t in loop.app.tables}
        post = self.function_name(program.operator(operator, "post"))
        self.result_stride = max(program.resolved(t.row).state[1] for t in loop.app.tables)
        plan = program.operator(operator, "plan")
        self.plans = [plan]
        self.shared = any(self.operates(n.data) for n in _within(plan.body) if n.op == "call" and _plans(n.data))
        lines = []
        if self.follows(plan.body, False, ("require", "modify", "read"), "drop")[1]:
            self.phase = "drops"
            lines += [f"_status = {self.function_name(plan, 'drops')}(_ctx, _row, 0)", "if _status != 2:"]
        if self.follows(plan.body, False, ("modify", "read"), "require")[1]:
            self.phase = "conditions"
            first = self.function_name(plan, "conditions")
            self.phase = "operations"
            second = self.operations(plan)
            passes = [
                f"_status = {first}(_ctx, _row, 0)",
                f"_status = {second}(_ctx, _row, 0, _status == 1) if _status != 2 else 2",
            ]
        else:
            self.phase = "whole"
            passes = [f"_status = {self.function_name(plan)}(_ctx, _row, 0)"]
        self.phase = "whole"
        return [
            *lines,
            *(f"    {line}" if lines else line for line in passes),
            "if _status != 2:",
            "    _ok = (_status & 1) == 1",
            "    if not _ok:",
            f"        _put(_ctx + {memory.REJECTED}, _get(_ctx + {memory.REJECTED}) + 1)",
            f"    _put(_ctx + {memory.READS}, _status >> 2)",
            f"    {post}(_ctx, _row, _ok, 0)",
        ]

    def operations(self, plan: Function) -> str:
        """The plan without its conditions; takes as one more argument whether they held."""
        widened = Function(
            plan.name,
            plan.file,
            plan.line,
            [*plan.parameters, ("txn_ok", None)],
            plan.body,
            plan.kind,
            {**plan.variables, "txn_ok": None},
        )
        self.plans.append(widened)
        return self.function_name(widened, "operations")

    def operates(self, function: Function) -> bool:
        """Whether a function that a plan calls has conditions or operations."""
        return any(
            n.op in ("require", "modify", "read") or (n.op == "call" and _plans(n.data) and self.operates(n.data))
            for n in _within(function.body)
        )

    def follows(self, parts: list[Any], seen: bool, first: tuple[str, ...], second: str) -> tuple[bool, bool]:
        """Whether one of the steps `first` has been met by the end of `parts`, and whether a step `second` may come
        after one; `seen`: one has been met before."""
        late = False
        for part in parts:
            if isinstance(part, list):
                seen, inside = self.follows(part, seen, first, second)
            elif part.op == "if":
                seen, inside = self.follows([part.args[0]], seen, first, second)
                ways = [self.follows(branch, seen, first, second) for branch in part.args[1:]]
                seen, inside = any(met for met, _ in ways), inside or any(after for _, after in ways)
            elif part.op in ("for", "while"):
                seen, inside = self.follows(part.args, seen, first, second)
                inside = inside or (seen and self.follows(part.args, seen, first, second)[1])
            else:
                seen, inside = self.follows(part.args, seen, first, second)
                if part.op == "call" and _plans(part.data):
                    seen, further = self.follows(part.data.body, seen, first, second)
                    inside = inside or further
                inside = inside or (seen and part.op == second)
                seen = seen or part.op in first
            late = late or inside
        return seen, late

    def sink(self, output: Resolved) -> None:
        """Counts `sub` and hashes every output row (runtime/README.md, Digest)."""
        for name, value in (("_K1", int(K1)), ("_K2", int(K2)), ("_SEED", SEED), ("_HALF", 32), ("_LATE", 29)):
            self.namespace[name] = np.uint64(value)
        lines = [
            (0, "@_compiled", 0),
            (0, "def _sink(_ctx, rows, n, subs):", 0),
            (1, f"total, last, next_sub = _u64(0), _get(_ctx + {memory.LAST}), _get(_ctx + {memory.NEXT_SUB})", 0),
            (1, f"text = _get(_ctx + {memory.TEXT})", 0),
            (1, "for j in range(n):", 0),
            (2, f"row = rows + j * {output.event[1]}", 0),
            (2, "seq = _get(row)", 0),
            (2, "sub = next_sub if seq == last else 0", 0),
            (2, "last, next_sub = seq, sub + 1", 0),
            (2, "_put_u32(subs + 4 * j, sub)", 0),
            (2, "h = (_SEED ^ _u64(seq)) * _K1", 0),
            (2, "h ^= h >> _HALF", 0),
            (2, "h = (h ^ _u64(sub)) * _K1", 0),
            (2, "h ^= h >> _HALF", 0),
        ]
        for slot in output.event[0].values():
            if isinstance(slot.type, Text):
                lines += [
                    (2, f"length = _get_u32(row + {slot.offset + 4})", 0),
                    (2, f"address = text + _get_u32(row + {slot.offset})", 0),
                    (2, "h = (h ^ _u64(length)) * _K1", 0),
                    (2, "h ^= h >> _HALF", 0),
                    # The first two words without branches: how long a word is cannot be predicted.
                    (2, "one = (h ^ _text_word(address, length)) * _K1", 0),
                    (2, "one ^= one >> _HALF", 0),
                    (2, "two = (one ^ _text_word(address + 8, length - 8)) * _K1", 0),
                    (2, "two ^= two >> _HALF", 0),
                    (2, "h = one if length > 0 else h", 0),
                    (2, "h = two if length > 8 else h", 0),
                    (2, "at = 16", 0),
                    (2, "while at < length:", 0),
                    (3, "h = (h ^ _text_word(address + at, length - at)) * _K1", 0),
                    (3, "h ^= h >> _HALF", 0),
                    (3, "at += 8", 0),
                ]
                continue
            scalar = slot.type.item if isinstance(slot.type, Array) else slot.type
            for k in range(slot.count):
                value = self.load(scalar, f"row + {slot.offset + k * scalar.width}")
                word = f"_float_bits({value})" if scalar.is_float else f"_u64({value})"
                lines += [(2, f"h = (h ^ {word}) * _K1", 0), (2, "h ^= h >> _HALF", 0)]
        lines += [
            (2, "h *= _K2", 0),
            (2, "total += h ^ (h >> _LATE)", 0),
            (1, f"_put(_ctx + {memory.LAST}, last)", 0),
            (1, f"_put(_ctx + {memory.NEXT_SUB}, next_sub)", 0),
            (1, "return total", 0),
        ]
        self.finished += lines

    def union(self, i: int, operator: Operator) -> None:
        """Merges the streams that an operator takes: by event, and of each event in the order of the streams."""
        streams = range(len(operator.inputs))
        stride = self.loop.program.resolved(operator.inputs[0].output).event[1]
        emitter = self.loop.emitter(len(self.loop.operators) + i)
        given = ", ".join(f"at_{k}, n_{k}" for k in streams)
        lines: list[tuple[int, str, int]] = [
            (0, "@_compiled", 0),
            (0, f"def _union_{i}(_ctx, {given}):", 0),
            *((1, f"end_{k} = at_{k} + n_{k} * {stride}", 0) for k in streams),
            (1, f"while {' or '.join(f'at_{k} < end_{k}' for k in streams)}:", 0),
            (2, f"first = {memory.END_OF_TIME}", 0),
            *((2, f"first = min(first, _get(at_{k}) if at_{k} < end_{k} else first)", 0) for k in streams),
        ]
        for k in streams:
            lines += [
                (2, f"begin = at_{k}", 0),
                (2, f"while at_{k} < end_{k} and _get(at_{k}) == first:", 0),
                (3, f"at_{k} += {stride}", 0),
                (2, f"_append_rows({emitter}, begin, at_{k} - begin)", 0),
            ]
        self.finished += lines

    def driver(self, calls: list[str], flushes: list[str]) -> None:
        """The loop over slices of events, and the end of the stream."""
        loop, operators = self.loop, self.loop.operators
        resolved = loop.program.resolved
        events = loop.app.operators[0]
        sink = loop.app.operators[-1]
        # The emitter that holds the outputs, and the stride of every emitter's rows.
        last = len(operators) + loop.unions.index(sink) if sink in loop.unions else len(operators) - 1
        strides = [resolved(o.output).event[1] for o in operators]
        strides += [resolved(o.inputs[0].output).event[1] for o in loop.unions]

        def reset(i: int) -> str:
            emitter = loop.emitter(i)
            return f"_put({emitter + memory.NEXT}, _get({emitter + memory.BEGIN}))"

        def made(i: int, skip: str = "0") -> tuple[str, str]:
            emitter = loop.emitter(i)
            begin = f"_get({emitter + memory.BEGIN}) + {skip}"
            return begin, f"(_get({emitter + memory.NEXT}) - _get({emitter + memory.BEGIN}) - {skip}) // {strides[i]}"

        def taken(operator: Operator, source: tuple[str, str]) -> tuple[list[str], tuple[str, str]]:
            """What merges the streams of an operator, if there are several, and where its rows then are."""
            streams = [source if o is events else made(operators.index(o)) for o in operator.inputs]
            if operator not in loop.unions:
                return [], streams[0]
            i = loop.unions.index(operator)
            words = ", ".join(word for stream in streams for word in stream)
            return [f"_union_{i}(_ctx, {words})"], made(len(operators) + i)

        def end(indent: int) -> list[tuple[int, str, int]]:
            begin, n = made(last, "kept")
            return [
                (indent, f"m = {n}", 0),
                (indent, f"if 4 * (total + m) > _get(_ctx + {memory.SUBS_CAPACITY}):", 0),
                (indent + 1, "_more_subs(_ctx, total + m)", 0),
                (
                    indent,
                    f"digest += _sink(_ctx, {begin}, m, _get(_ctx + {memory.SUBS}) + 4 * (total if keep != 0 else 0))",
                    0,
                ),
                (indent, "total += m", 0),
            ]

        opening: list[tuple[int, str, int]] = [(1, reset(i), 0) for i in range(len(strides))]
        opening += [(1, "total, digest, kept = 0, _u64(0), 0", 0)]
        body: list[tuple[int, str, int]] = [(2, reset(i), 0) for i in range(len(strides)) if i != last]
        body += [
            (2, "if keep != 0:", 0),
            (3, f"kept = _get({loop.emitter(last) + memory.NEXT}) - _get({loop.emitter(last) + memory.BEGIN})", 0),
            (2, "else:", 0),
            (3, reset(last), 0),
        ]
        slice_ = (f"rows + first * {resolved(events.output).event[1]}", "n")
        for operator, call in zip(operators, calls, strict=True):
            before, (begin, n) = taken(operator, slice_)
            body += [*((2, line, 0) for line in before), (2, f"{call}(_ctx, {begin}, {n})", 0)]
        body += [(2, line, 0) for line in taken(sink, slice_)[0]]
        closing = [
            (1, f"_put(_ctx + {memory.ROWS}, _get({loop.emitter(last) + memory.BEGIN}))", 0),
            (1, f"_put(_ctx + {memory.COUNT}, total)", 0),
            (1, f"_put(_ctx + {memory.DIGEST}, _int(digest))", 0),
            (1, "return 0", 0),
        ]
        lines = [
            (0, "@_compiled", 0),
            (0, "def _more_subs(_ctx, n):", 0),
            (1, "block = _allocate(8 * n + 4096)", 0),
            (1, f"_copy_bytes(block, _get(_ctx + {memory.SUBS}), _get(_ctx + {memory.SUBS_CAPACITY}))", 0),
            (1, f"_release(_get(_ctx + {memory.SUBS}))", 0),
            (1, f"_put(_ctx + {memory.SUBS}, block)", 0),
            (1, f"_put(_ctx + {memory.SUBS_CAPACITY}, 8 * n + 4096)", 0),
            (0, "@_compiled", 0),
            (0, "def _run(_ctx, rows, events, keep):", 0),
            *opening,
            (1, f"for first in range(0, events, {_SLICE}):", 0),
            (2, f"n = min({_SLICE}, events - first)", 0),
            *body,
            *end(2),
            *closing,
            (0, "@_compiled", 0),
            (0, "def _flush(_ctx, orders, counts, keep):", 0),
            *opening,
        ]
        stateful = 0
        nothing = ("0", "0")  # is what the source puts out at the end
        for i, (operator, call) in enumerate(zip(operators, calls, strict=True)):
            before, (begin, n) = taken(operator, nothing)
            lines += [(1, line, 0) for line in before]
            if (begin, n) != nothing:
                # What was flushed to this operator comes first; the loop over rows takes its seq from them.
                lines.append((1, f"{call}(_ctx, {begin}, {n})", 0))
            if operator.kind in ("stateful", "partitioned"):
                if flushes[i]:
                    lines.append(
                        (1, f"{flushes[i]}(_ctx, _get(orders + {8 * stateful}), _get(counts + {8 * stateful}))", 0)
                    )
                stateful += 1
        lines += [(1, line, 0) for line in taken(sink, nothing)[0]]
        self.finished += [*lines, *end(1), *closing]

    # --- statements

    def s_return(self, node: Node) -> None:
        assert self.function is not None
        if self.function in self.plans:
            if not self.dropping:
                self.add(f"return {self.status()}")
            self.dropping = False
            return
        self.add(f"return {self.expression(node.args[0])}" if node.args else "return")

    dropping = False

    def s_drop(self, node: Node) -> None:
        assert self.function is not None
        word = self.emitter + memory.DROPPED
        self.add(f"_put({word}, _get({word}) + 1)")
        if self.function in self.plans:
            self.add("return 2")
            self.dropping = True

    def s_setfield(self, node: Node) -> None:
        row, value = self.operands(node)
        self.add(self.store(node.data.type, f"{row} + {node.data.offset}", value))

    def s_setitem(self, node: Node) -> None:
        array, position, value = self.operands(node)
        kind = node.args[0].kind
        at = f"{array} + _index(_ctx, {position}, {kind.count}, {self.site(node.line)}) * {kind.item.width}"
        self.add(self.store(kind.item, at, self.plain(node.args[2], kind.item, value)))

    def plain(self, node: Node, scalar: Scalar, value: str) -> str:
        """A value in the type its store takes."""
        return f"({value} != 0)" if scalar.name == "boolean" and node.kind == INT else value

    def s_emit(self, node: Node) -> None:
        output, values = node.data, self.operands(node)
        for i, value in enumerate(values):
            self.add(f"_v{i} = {value}")
        stride = output.event[1]
        self.add(f"_o = _get({self.emitter + memory.NEXT})")
        self.add(f"if _o + {stride} > _get({self.emitter + memory.LIMIT}):")
        self.add(f"    _o = _more_rows({self.emitter}, {stride})")
        self.add(f"_put({self.emitter + memory.NEXT}, _o + {stride})")
        self.add(f"_put(_o, _get(_ctx + {memory.SEQ}))")
        for i, slot in enumerate(output.event[0].values()):
            if isinstance(slot.type, Text):
                self.add(f"_put_u32(_o + {slot.offset}, _v{i}[0] - _get(_ctx + {memory.TEXT}))")
                self.add(f"_put_u32(_o + {slot.offset + 4}, _v{i}[1])")
            elif isinstance(slot.type, Array):
                self.add(f"_copy_bytes(_o + {slot.offset}, _v{i}, {slot.size})")
            else:
                self.add(self.store(slot.type, f"_o + {slot.offset}", f"_v{i}"))

    def status(self) -> str:
        """What a plan returns: the number of its reads, and in the last bit whether all conditions hold."""
        if self.shared:
            return f"(_get(_ctx + {memory.READS}) << 2) | _get(_ctx + {memory.HOLDS})"
        return "(_reads << 2) | _int(_ok)"

    def request(self) -> str:
        assert self.function is not None
        found = (n for n, k in self.function.parameters if isinstance(k, RowKind) and k.role == "event")
        return next(found)

    def s_require(self, node: Node) -> None:
        if self.phase == "operations":
            return
        condition, extra = node.data
        places, extra = self.operands(node), [self.expression(e) for e in extra]
        given = ", ".join(["_ctx", *places, self.request(), *extra])
        holds = f"{self.function_name(condition)}({given})"
        if self.phase == "drops":  # what the plan itself evaluates may fail, and does so before it drops the event
            for value in [*places, *extra] if places else [holds]:
                self.add(f"_place = {value}")
            return
        self.add(f"if not {holds}:")
        self.add(f"    _put(_ctx + {memory.HOLDS}, 0)" if self.shared else "    _ok = False")

    def s_modify(self, node: Node) -> None:
        row, *extra = self.operands(node)
        self.add(f"_place = {row}")
        for value in extra:
            self.add(f"_argument = {value}")
        if self.phase in ("whole", "operations"):
            self.add(f"if _get(_ctx + {memory.HOLDS}) != 0:" if self.shared else "if _ok:")
            given = ", ".join(["_ctx", "_place", self.request(), *(["_argument"] if extra else [])])
            self.add(f"    {self.function_name(node.data)}({given})")

    def s_read(self, node: Node) -> None:
        self.add(f"_place = {self.expression(node.args[0])}")
        if self.phase not in ("whole", "operations"):
            return
        table = node.args[0].kind.table
        resolved = self.loop.program.resolved(table.row)
        self.namespace["_result_slot"] = result_slot
        reads = f"_get(_ctx + {memory.READS})" if self.shared else "_reads"
        self.add(f"_slot = _result_slot(_ctx, {reads}, {self.result_stride})")
        for name in sorted(self.read_fields[table.index]):
            slot = resolved.state[0][name]
            if isinstance(slot.type, Scalar):
                self.add(
                    self.store(slot.type, f"_slot + {slot.offset}", self.load(slot.type, f"_place + {slot.offset}"))
                )
            else:
                self.add(f"_copy_bytes(_slot + {slot.offset}, _place + {slot.offset}, {slot.size})")
        self.add(f"_put(_ctx + {memory.READS}, {reads} + 1)" if self.shared else "_reads += 1")

    def s_for(self, node: Node) -> None:
        assert self.function is not None
        bounds = [self.expression(b) for b in node.args[0]]
        if len(bounds) == 3 and node.args[0][2].op != "const":
            bounds[2] = f"_step(_ctx, {bounds[2]}, {self.site(node.line)})"
        if self.function.variables[node.data] == INT:
            self.add(f"for {node.data} in range({', '.join(bounds)}):")
        else:
            self.add(f"for _i in range({', '.join(bounds)}):")
            self.add(f"    {node.data} = {self.convert('_i', INT, self.function.variables[node.data])}")
        self.block(node.args[1])

    # --- arithmetic

    def convert(self, value: str, given: Any, wanted: Any) -> str:
        return f"_float({value})" if wanted == FLOAT else f"_int({value})"

    def infix(self, node: Node, sign: str) -> str:
        left, right = self.operands(node)
        return f"({left} {sign} {right})"

    def checked(self, node: Node, name: str) -> str:
        return f"{name}(_ctx, {', '.join(self.operands(node))}, {self.site(node.line)})"

    def e_add(self, node: Node) -> str:
        return self.infix(node, "+")

    def e_sub(self, node: Node) -> str:
        return self.infix(node, "-")

    def e_mul(self, node: Node) -> str:
        return self.infix(node, "*")

    def e_div(self, node: Node) -> str:
        return self.checked(node, "_divide")

    def e_floordiv(self, node: Node) -> str:
        return self.checked(node, "_floor_divide" if node.kind == INT else "_float_floor_divide")

    def e_mod(self, node: Node) -> str:
        return self.checked(node, "_modulo" if node.kind == INT else "_float_modulo")

    def e_neg(self, node: Node) -> str:
        return f"(-{self.expression(node.args[0])})"

    def e_abs(self, node: Node) -> str:
        return f"abs({self.expression(node.args[0])})"

    def e_shl(self, node: Node) -> str:
        return self.checked(node, "_shift_left")

    def e_shr(self, node: Node) -> str:
        return self.checked(node, "_shift_right")

    def e_truncate(self, node: Node) -> str:
        return self.checked(node, "_truncate")

    def e_fit(self, node: Node) -> str:
        scalar, _ = node.data
        value = f"_fit(_ctx, {self.expression(node.args[0])}, {scalar.low}, {scalar.high}, {self.site(node.line)})"
        return f"({value} != 0)" if scalar.name == "boolean" else value

    def e_let(self, node: Node) -> str:
        # The middle of a chain of comparisons is printed twice: numba loses the type of a variable assigned within an
        # expression. Evaluating it again changes nothing unless it calls something that does.
        if any(n.op in ("call", "method") for n in _within(node.args)):
            raise BadInput(
                f"operator {self.operator_name}: the compiled loop takes no calls in the middle of a < b < c"
            )
        self.middles[node.data] = node.args[0]
        return self.expression(node.args[0])

    def e_var(self, node: Node) -> str:
        return self.expression(self.middles[node.data]) if node.data in self.middles else super().e_var(node)

    def e_const(self, node: Node) -> str:
        if node.kind == INT and node.data == LOW:
            return f"(-{HIGH} - 1)"
        return super().e_const(node)

    # --- rows, text, containers

    def text_at(self, row: str, offset: int) -> str:
        return f"(_get(_ctx + {memory.TEXT}) + _get_u32({row} + {offset}), _get_u32({row} + {offset + 4}))"

    def e_field(self, node: Node) -> str:
        [row] = self.operands(node)
        slot, kind = node.data, node.args[0].kind
        if kind.role == "result":
            self.read_fields[kind.table.index].add(slot.name)
        if isinstance(slot.type, Text):
            if node.args[0].op != "var":
                raise BadInput(f"operator {self.operator_name}: text is loaded from a row's name")
            return self.text_at(row, slot.offset)
        return self.load(slot.type, f"{row} + {slot.offset}")

    def e_part(self, node: Node) -> str:
        kind = node.args[0].kind
        if kind.role == "result":
            self.read_fields[kind.table.index].add(node.data.name)
        return f"({self.expression(node.args[0])} + {node.data.offset})"

    def e_item(self, node: Node) -> str:
        array, position = self.operands(node)
        kind = node.args[0].kind
        at = f"_index(_ctx, {position}, {kind.count}, {self.site(node.line)}) * {kind.item.width}"
        return self.load(kind.item, f"{array} + {at}")

    def e_constant(self, node: Node) -> str:
        values = self.loop.program.constant(node.data)
        self.loop._keep.append(values)
        return str(values.ctypes.data)

    def e_constantitem(self, node: Node) -> str:
        values = self.loop.program.constant(node.args[0].data)
        table, position = self.operands(node)
        word = f"_get({table} + 8 * _index(_ctx, {position}, {len(values)}, {self.site(node.line)}))"
        return f"_bits_float({word})" if node.kind == FLOAT else word

    def e_textitem(self, node: Node) -> str:
        return self.checked(node, "_text_item")

    def e_textlength(self, node: Node) -> str:
        return f"{self.expression(node.args[0])}[1]"

    def e_textequal(self, node: Node) -> str:
        return f"_text_equal({', '.join(self.operands(node))})"

    def e_slice(self, node: Node) -> str:
        return self.checked(node, "_text_slice")

    def e_find(self, node: Node) -> str:
        return self.checked(node, "_text_find")

    def e_method(self, node: Node) -> str:
        box, *values = self.operands(node)
        kind, name = node.args[0].kind, node.data
        site = self.site(node.line)
        match kind.type:
            case Ring(item):
                if name == "length":
                    return f"_get_u32({box} + 4)"
                if name == "item":
                    at = f"_ring_item(_ctx, {box}, {values[0]}, {kind.count}, {site})"
                    return self.load(item, f"{box} + 8 + {at} * {item.width}")
                if name == "append":
                    # The value first: one that does not fit must not have made room for itself.
                    self.add(f"_value = {self.fitted(item, values[0], node.args[1], site)}")
                    value = "_value"
                    return self.store(item, f"{box} + 8 + _ring_slot({box}, {kind.count}) * {item.width}", value)
                return f"_put({box}, 0)"
            case Set(item):
                key, value = item, None
            case Map(key, value):
                pass
            case Counter(key):
                value = None
            case TopK():
                key, value = None, None
        match name:
            case "length":
                return f"_get_u32({box} + 8)"
            case "clear":
                return f"_box_clear({box})"
            case "contains":
                return f"(_box_find({box}, {values[0]}) >= 0)"
            case "at" | "key_at" | "value_at" | "score_at":
                offset = 8 if name in ("value_at", "score_at") else 0
                found = f"_get(_get({box}) + 16 * _index(_ctx, {values[0]}, _get_u32({box} + 8), {site}) + {offset})"
                return self.seen(found, value) if name == "value_at" else found
            case "offer":
                return f"_top_offer(_ctx, {box}, {', '.join(values)}, {kind.count})"
            case "add" if isinstance(kind.type, Set):
                return f"_set_add(_ctx, {box}, {values[0]}, {key.low}, {key.high}, {site})"
            case "add":
                return f"_counter_add(_ctx, {box}, {', '.join(values)}, {key.low}, {key.high}, {site})"
            case "get" if isinstance(kind.type, Counter):
                self.namespace["_box_get"] = box_get
                return f"_box_get({box}, {values[0]}, 0)"
            case "get":
                self.namespace["_box_get"] = box_get
                return self.seen(f"_box_get({box}, {values[0]}, {self.bits(value, values[1])})", value)
            case "put":
                fitted = self.fitted(value, values[1], node.args[2], site)
                fits = f"_fit(_ctx, {values[0]}, {key.low}, {key.high}, {site})"
                return f"_box_put(_ctx, {box}, {fits}, {self.bits(value, fitted)})"
        raise AssertionError(name)

    def fitted(self, scalar: Scalar, value: str, node: Node, site: int) -> str:
        """A value checked against the type a container holds."""
        if scalar.is_float or (scalar.name == "boolean" and node.kind != INT):
            return value
        checked = f"_fit(_ctx, {value}, {scalar.low}, {scalar.high}, {site})"
        return f"({checked} != 0)" if scalar.name == "boolean" else checked

    def bits(self, scalar: Scalar, value: str) -> str:
        """A value as the word a container keeps."""
        return f"_int(_float_bits(_float({value})))" if scalar.is_float else f"_int({value})"

    def seen(self, word: str, scalar: Scalar) -> str:
        """A container's word as an operator sees it."""
        return f"_bits_float({word})" if scalar.is_float else f"({word} != 0)" if scalar.name == "boolean" else word

    def e_call(self, node: Node) -> str:
        phase = self.phase if _plans(node.data) and self.phase != "whole" else ""
        return f"{self.function_name(node.data, phase)}({', '.join(['_ctx', *self.operands(node)])})"

    # --- transactions

    def e_accepted(self, node: Node) -> str:
        assert self.function is not None
        return next(name for name, kind in self.function.parameters if kind == POST)

    def e_row(self, node: Node) -> str:
        rows = self.loop.tables[node.data]
        position = f"_index(_ctx, {self.expression(node.args[0])}, {len(rows)}, {self.site(node.line)})"
        return f"({rows.ctypes.data} + {position} * {rows.dtype.itemsize})"

    def e_result(self, node: Node) -> str:
        stride = max(self.loop.program.resolved(t.row).state[1] for t in self.loop.app.tables)
        position = f"_index(_ctx, {self.expression(node.args[0])}, _get(_ctx + {memory.READS}), {self.site(node.line)})"
        return f"(_get(_ctx + {memory.RESULTS}) + {position} * {stride})"


def _within(parts: list[Any]) -> Iterator[Node]:
    """Statements and expressions, and everything in them."""
    for part in parts:
        if isinstance(part, list):
            yield from _within(part)
        else:
            yield part
            yield from _within(part.args)


def _plans(function: Function) -> bool:
    """Whether a function is given the transaction, to have conditions and operations of its own."""
    return any(kind == PLAN for _, kind in function.parameters)


@memory.compiled
def box_get(box, key, default):
    """The word of a key, or `default`."""
    place = memory_box_find(box, key)
    return default if place < 0 else memory_get(memory_get(box) + 16 * place + 8)


@memory.compiled
def more_results(ctx, needed):
    """Makes the buffer of results larger."""
    limit = memory_get(ctx + RESULT_CAPACITY)
    room = max(2 * limit, 4096 * needed)
    block = memory_allocate(room)
    memory_copy(block, memory_get(ctx + memory_results), limit)
    memory_release(memory_get(ctx + memory_results))
    memory_put(ctx + memory_results, block)
    memory_put(ctx + RESULT_CAPACITY, room)


@memory.compiled
def result_slot(ctx, i, stride):
    """Address of the i-th result of an event."""
    if (i + 1) * stride > memory_get(ctx + RESULT_CAPACITY):
        more_results(ctx, (i + 1) * stride)
    return memory_get(ctx + memory_results) + i * stride


memory_box_find, memory_get, memory_put = memory.box_find, memory.get, memory.put
memory_allocate, memory_release, memory_results = memory.allocate, memory.release, memory.RESULTS
RESULT_CAPACITY = memory.RESULT_CAPACITY

_WORDS = (
    "get", "put", "get_u32", "put_u32", "get_u64", "index", "fit", "divide", "floor_divide", "modulo", "step",
    "float_floor_divide", "float_modulo", "shift_left", "shift_right", "truncate", "text_item", "text_slice",
    "text_find", "text_equal", "text_word", "text_state", "integer_state", "more_rows", "append_rows",
    "allocate", "release", "copy_bytes", "float_bits", "bits_float", "ring_slot", "ring_item", "box_find", "box_put",
    "box_clear", "counter_add", "set_add", "top_offer", "wipe",
)  # fmt: skip
