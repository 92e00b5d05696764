"""A loop's memory: its context and emitters, tables, maps, and constants."""

from __future__ import annotations

import weakref
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_core.data.rows import typed
from streaming_core.errors import RunFailed
from streaming_core.language.application import App, Table
from streaming_core.language.operator import Operator, key_columns
from streaming_core.language.record import Resolved, Text
from streaming_core.language.tables import BoundTable
from streaming_core.language.typed import Program
from streaming_core.language.window import Bounds
from streaming_core.oracle.loop import layout
from streaming_core.oracle.loop.columns import column_of, view, word_at
from streaming_core.oracle.loop.machine import Machine
from streaming_core.oracle.loop.memory_functions import memory_functions
from streaming_core.oracle.loop.region import Region


class Workspace:
    """The memory of a bound application's loop, in its initial state; freed with the last reference.

    Attributes:
        ctx: Address of the context.
        operators: Operators without source and sink, in topological order; each has an emitter.
        unions: Operators with several input streams. Each has an emitter for its merged inputs, behind those of
            `operators`.
        tables: Rows by table.
        indexes: Index by table, if it has one.
        key_maps: The map from keys to rows, by table with an index.
        maps: The states of operators, in their order: address of a map, or of the only state.
        windows: Numbers and words of each windowed operator.
        region: The memory of the state: context and emitters, rows, maps, windows.
        places: Addresses by symbol of the blocks in printed code.
        sites: The message of an error, by the number of its site.
    """

    def __init__(self, app: App, program: Program, base: int | None = None):
        """Make the memory, with its region at an address; None: a free one."""
        self.app, self.program = app, program
        self.region = Region(base)
        self.operators = [o for o in app.operators if o.kind not in ("source", "sink")]
        # A windowed operator takes its streams as they are.
        self.unions = [
            o
            for o in app.operators
            if (len(o.inputs) > 1 and o.window is None) or (o.kind == "sink" and not self._ends(o))
        ]
        emitters = len(self.operators) + len(self.unions)
        self.context = self.region.block(layout.HEAD_BYTES + layout.EMITTER_BYTES * emitters)
        self.ctx = self.context.ctypes.data
        self.places: dict[str, int] = {}
        self._blocks: list[np.ndarray] = []  # live as long as the loop
        self.sites: list[str] = ["?"]
        self.tables = {table.declared: self._open_table(table) for table in program.tables}
        self.indexes = {table.declared: table.index for table in program.tables if table.index is not None}
        self.key_maps = {table: self.region.block(layout.MAP_BYTES) for table in self.indexes}
        self.maps: list[tuple[Operator, int]] = []
        self.windows: list[tuple[Bounds, np.ndarray]] = []
        self._functions = memory_functions()
        for table in self.indexes:
            self._open_index(table)
        # The words of buffers in the context: those of the sink and of an event's results, then the emitters'.
        self._buffers = [word // 8 for word in (layout.SUBS, layout.RESULTS)]
        self._buffers += [(self.emitter(i) + layout.BEGIN - self.ctx) // 8 for i in range(emitters)]
        # Loads the function now, because the finalizer runs when nothing can be loaded.
        weakref.finalize(self, _free_buffers, self._functions["free_buffer"], self.context, self._buffers)

    @property
    def names_texts(self) -> bool:
        """Whether outputs may refer to texts outside the batch."""
        states = [self.program.records[o.kept] for o in self.operators if o.state is not None]
        return self.program.makes_texts or bool(self.windows) or any(state.keeps_texts for state in states)

    def _ends(self, sink: Operator) -> bool:
        """Whether the sink alone takes the rows of the last operator, and no others."""
        return sink.inputs == self.operators[-1:] and not any(sink.inputs[0] in o.inputs for o in self.operators)

    def place(self, block: np.ndarray) -> str:
        """Keep a block of memory as long as the loop lives; returns its symbol in printed code."""
        for i, known in enumerate(self._blocks):
            if known is block:
                return f"_block_{i}"
        self._blocks.append(block)
        symbol = f"_block_{len(self._blocks) - 1}"
        self.places[symbol] = block.ctypes.data
        return symbol

    def emitter(self, i: int) -> int:
        """Address of the emitter of operator i."""
        return self.ctx + layout.HEAD_BYTES + layout.EMITTER_BYTES * i

    def reset(self) -> None:
        """Return to the initial state."""
        self.region.clear()
        for bound in self.program.tables:
            self.tables[bound.declared][:] = _rows(bound)
        for operator, address in self.maps:
            if not operator.key:
                view(address, 8 * (self.program.records[operator.kept].state[1] // 8))[:] = 0
            else:
                view(address, layout.MAP_BYTES)[:] = 0
                self.open_map(operator, address)
        for bounds, words in self.windows:
            self.open_windows(bounds, words)
        self.context[layout.WAITING // 8 : layout.FREE // 8 + layout.SIZES] = 0
        for word in (layout.REJECTED, layout.ARENA, layout.ARENA_LIMIT, layout.LAST, layout.NEXT_SUB):
            self.context[word // 8] = 0
        for i in range(len(self.operators)):
            view(self.emitter(i) + layout.DROPPED, 8)[:] = 0
        for table in self.key_maps:
            self._open_index(table)

    def load(self, file: BinaryIO) -> None:
        """Take over a saved region; its buffers were those of another process."""
        passing = [word // 8 for word in layout.PASSING]
        passing += [begin + i for begin in self._buffers[2:] for i in (-2, -1, 0)]  # NEXT, LIMIT, BEGIN
        words = self.context[passing]
        self.region.load(file)
        self.context[passing] = words

    def _open_table(self, table: BoundTable) -> np.ndarray:
        """Make the rows of a table."""
        rows = _rows(table)
        block = self.region.block(rows.nbytes).view(np.uint8)[: rows.nbytes].view(rows.dtype)
        block[:] = rows
        return block

    def open_map(self, operator: Operator, table: int) -> None:
        """Make an operator's empty map."""
        state = self.program.records[operator.kept].state[1]
        if not self._functions["map_open"](table, state, 3 if self._has_text_keys(operator) else 2):
            raise RunFailed("out of memory")

    def _open_index(self, table: Table) -> None:
        """Make the map from a table's keys to its rows, with its initial keys."""
        indexed, block = self.indexes[table], self.key_maps[table]
        block[:] = 0
        address, keys = block.ctypes.data, self.program.tables[table.index].keys()
        complete = self._functions["map_open"](address, 8, 3 if indexed.is_text else 2)
        if isinstance(keys, list):
            offsets = np.cumsum([0, *map(len, keys)], dtype=np.int64)
            content = np.frombuffer(b"".join(keys) + bytes(16), np.uint8)
            where = content.ctypes.data, offsets.ctypes.data
            complete = complete and self._functions["enter_texts"](self.ctx, address, *where, len(keys))
        elif keys is not None:
            complete = complete and self._functions["enter_integers"](self.ctx, address, keys.ctypes.data, len(keys))
        if not complete:
            raise RunFailed("out of memory")

    def open_windows(self, bounds: Bounds, words: np.ndarray) -> None:
        """Set the words of a windowed operator without rows. Its numbers are data: the code does not depend on them."""
        words[:] = 0
        words[layout.W_LEAST // 8] = words[layout.WINDOWS_BYTES // 8 :] = layout.NO_TIME
        known = (
            (layout.W_ADVANCE, bounds.advance), (layout.W_SIZE, bounds.size), (layout.W_DELAY, bounds.delay),
            (layout.W_IDLE, -1 if bounds.idle is None else bounds.idle), (layout.W_EVERY, bounds.every or 0),
        )  # fmt: skip
        for word, value in known:
            words[word // 8] = value

    def state(self) -> dict[str, pa.Table]:
        """Return final tables by name, then keyed states by operator, ascending by key."""
        states = {}
        for table, rows in self.tables.items():
            keys = pa.array(np.arange(len(rows), dtype=np.int64))
            if table in self.indexes:
                text, address = self.indexes[table].is_text, self.key_maps[table].ctypes.data
                addresses = self._entries(text, address)
                numbers = np.zeros(len(addresses), np.int64)
                where = addresses.ctypes.data, len(addresses), 24 if text else 16, numbers.ctypes.data
                self._functions["copy_states"](address, *where)
                keys, rows = self._keys(text, addresses), rows[numbers - 1]
            states[table.name] = self._states_table(self.program.records[table.row], rows, [keys])
        for operator, address in self.maps:
            resolved = self.program.records[operator.kept]
            dtype = resolved.dtype(False)
            if not operator.key:
                rows = view(address, dtype.itemsize).view(dtype).copy()
                states[operator.name] = self._states_table(resolved, rows, [])
                continue
            text = self._has_text_keys(operator)
            addresses = self._entries(text, address)
            rows = np.zeros(len(addresses), dtype)
            self._functions["copy_states"](
                address, addresses.ctypes.data, len(addresses), 24 if text else 16, rows.ctypes.data
            )
            keys = [self._keys(text, addresses)]
            if len(operator.key) > 1:
                keys = _unpacked(keys[0], [isinstance(operator.input.fields[field], Text) for field in operator.key])
            states[operator.name] = self._states_table(resolved, rows, keys)
        return states

    def _has_text_keys(self, operator: Operator) -> bool:
        """Whether the map has texts as keys: texts, or packed fields."""
        return len(operator.key) > 1 or isinstance(operator.input.fields[operator.key[0]], Text)

    def _entries(self, text: bool, table: int) -> np.ndarray:
        """The entries of a map that are in use, ascending by key."""
        addresses = np.empty(int(word_at(table + layout.USED)), np.int64)
        self._functions["entries_in_use"](table, 0 if text else 8, addresses.ctypes.data)
        order = pc.sort_indices(self._keys(text, addresses)).to_numpy()
        return np.ascontiguousarray(addresses[order])

    def _keys(self, text: bool, addresses: np.ndarray) -> pa.Array:
        if not text:
            keys = np.empty(len(addresses), np.int64)
            self._functions["copy_integer_keys"](addresses.ctypes.data, len(addresses), keys.ctypes.data)
            return pa.array(keys)
        offsets = np.zeros(len(addresses) + 1, np.int64)
        arguments = addresses.ctypes.data, len(addresses), offsets.ctypes.data
        self._functions["copy_text_keys"](*arguments, 0)
        data = np.empty(offsets[-1] + 1, np.uint8)
        self._functions["copy_text_keys"](*arguments, data.ctypes.data)
        large = pa.Array.from_buffers(
            pa.large_binary(), len(addresses), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        return large.cast(pa.binary())

    def ascending(self, operator: Operator, table: int) -> np.ndarray:
        """Addresses of an operator's states, ascending by key."""
        if not operator.key:
            return np.array([table], np.int64)
        text = self._has_text_keys(operator)
        addresses = self._entries(text, table)
        if word_at(table + layout.INSIDE):
            return addresses + (24 if text else 16)
        return np.array([word_at(int(a) + (24 if text else 16)) for a in addresses], np.int64)

    def _states_table(self, resolved: Resolved, rows: np.ndarray, keys: list[pa.Array]) -> pa.Table:
        schema = resolved.arrow()
        arrays = typed({slot.name: column_of(rows[slot.name], slot, None) for slot in resolved.columns}, schema)
        names = key_columns(len(keys))
        fields = [pa.field(name, key.type, nullable=False) for name, key in zip(names, keys, strict=True)]
        return pa.Table.from_arrays([*keys, *arrays], schema=pa.schema([*fields, *schema]))


def _unpacked(packed: pa.Array, are_texts: list[bool]) -> list[pa.Array]:
    """Return the fields of packed keys (maps.py), a column for each."""
    columns: list[list] = [[] for _ in are_texts]
    for key in packed.to_pylist():
        for column, is_text in zip(columns, are_texts, strict=True):
            if is_text:
                text, _, key = key.partition(b"\0")
                column.append(text.replace(b"\1\1", b"\0").replace(b"\1\2", b"\1"))
            else:
                column.append(int.from_bytes(key[:8], "big") - (1 << 63))
                key = key[8:]
    kinds = (pa.binary() if is_text else pa.int64() for is_text in are_texts)
    return [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]


def _rows(table: BoundTable) -> np.ndarray:
    """Return all rows that a table can have, in their initial state."""
    rows = table.initial_rows()
    return rows if len(rows) == table.size else np.repeat(rows, table.size)


def _free_buffers(free: Machine, context: np.ndarray, words: list[int]) -> None:
    """Free the buffers of a loop."""
    for address in context[words].tolist():
        free(address)
