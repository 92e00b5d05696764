"""Operator functions, printed as code over addresses.

`Functions` prints expressions and statements; windowed.py and source.py add the loops around operator functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from streaming_core.language.record import Array, Counter, Map, Queue, Ring, Scalar, Set, Text, i64
from streaming_core.language.source import place
from streaming_core.language.typed.kinds import FLOAT, INT, POST, TEXT, RowKind
from streaming_core.language.typed.tree import Function, Node
from streaming_core.oracle.loop import checks, containers, layout, maps, memory, owned, panes, scans, sessions, text
from streaming_core.oracle.loop.machine import compiled
from streaming_core.oracle.loop.plans import plans
from streaming_core.oracle.loop.workspace import Workspace
from streaming_core.oracle.printer import HIGH, LOW, Printer

# The functions that printed code calls, by module; their names there begin with _.
_CALLED = {
    memory: (
        "get", "put", "get_u32", "put_u32", "get_u64", "more_rows", "append_rows", "allocate", "release", "more_buffer",
        "copy_bytes", "float_bits", "bits_float", "wipe", "result_slot", "keep_row",
        "taken_row",
    ),
    checks: (
        "index", "fit", "present", "divide", "floor_divide", "modulo", "step", "float_floor_divide", "float_modulo",
        "shift_left", "shift_right", "truncate",
    ),
    text: (
        "text_item", "text_slice", "text_find", "text_search", "text_equal", "text_compare", "text_among", "text_word",
        "text_starts", "text_ends", "text_strip", "text_cased", "text_concat", "text_decimal", "text_integer",
        "text_float", "part_end", "blank_end", "word_end",
    ),
    maps: (
        "text_state", "integer_state", "text_row", "integer_row", "text_hash", "mix", "packed_room",
        "pack_integer", "pack_text",
    ),
    panes: (
        "table_add", "table_remove", "pane_open", "first_open", "low_mark", "pane_take", "pane_memory", "pane_append",
        "pane_release", "in_order", "touched", "untouched", "forget", "key_slot", "stamps", "group_start",
        "group_step", "group_finish", "group_text", "group_of", "group_of_index", "batch_text",
    ),
    sessions: ("session_begin", "session_end"),
    containers: (
        "ring_slot", "ring_item", "box_find", "box_put", "box_clear", "box_remove", "counter_add", "set_add",
        "top_offer", "box_get", "box_item", "queue_slot", "queue_column", "queue_popleft", "queue_clear",
        "box_find_text", "box_get_text", "box_put_at_text", "box_put_text", "box_put_text_at_text", "box_clear_texts",
        "box_remove_texts", "box_item_text", "counter_add_text", "set_add_text", "queue_popleft_texts",
        "queue_clear_texts",
    ),
    owned: ("text_own", "text_seen", "text_put", "text_settle"),
}  # fmt: skip
WORDS = {f"_{name}": getattr(module, name) for module, names in _CALLED.items() for name in names}


class Functions(Printer):
    """Prints the typed functions of an application, as one operator calls them."""

    def __init__(self, work: Workspace):
        super().__init__()
        self.work = work
        self.namespace: dict[str, Any] = {
            **WORDS,
            "_compiled": compiled, "_int": types.int64, "_float": types.float64, "_u64": types.uint64,
            "_nan": float("nan"), "_inf": float("inf"), "min": min, "max": max, "abs": abs, "range": range, "len": len,
        }  # fmt: skip
        self.finished: list[tuple[int, str, int]] = []
        self.operator_name, self.emitter = "?", ""
        self.windows, self.key_bytes = "", 0  # of a windowed operator: its block of words, and the bytes of a key
        self.read_fields: dict[int, set[str]] = {}
        # A plan is one pass, "whole", or several: "drops" finds out whether it drops the event. Then come its
        # "conditions", then its "operations".
        self.phase = "whole"
        self.plans: list[Function] = []
        self.splits = 0
        self.texts: dict[bytes, np.ndarray] = {}  # the literals
        # The number of scans, and whether the printer is in the search of one, which has no branches.
        self.scans, self.in_search = 0, False
        # Variables of a plan hold its decision and its number of reads. The context holds them if functions that it
        # calls have conditions and operations, too.
        self.shared = False
        self.result_stride = 0  # bytes of the result of a read
        # Whether modifications read other rows; the copies of these are in front of the results.
        self.keeps = False

    def source(self) -> str:
        """Return all printed functions."""
        self.lines = self.finished
        return super().source()

    def place(self, values: np.ndarray) -> str:
        """Return the address of a block of memory, in printed code."""
        name = self.work.place(values)
        self.namespace[name] = memory.place(name)
        return f"{name}()"

    def emitter_of(self, i: int) -> str:
        """Return the address of an emitter, in printed code."""
        return f"_ctx + {self.work.emitter(i) - self.work.ctx}"

    def site(self, line: int) -> int:
        """Return a new number for an operation that may fail."""
        assert self.function is not None
        where = place(self.function.file, line or self.line).replace("{", "{{").replace("}", "}}")
        self.work.sites.append(f"operator {self.operator_name}, event {{seq}}: {{error}} ({where})")
        return len(self.work.sites) - 1

    def load(self, scalar: Scalar, address: str) -> str:
        """Return the load of a scalar at an address."""
        name = f"_load_{scalar.name}"
        self.namespace.setdefault(name, memory.loader(scalar))
        return f"{name}({address})"

    def store(self, scalar: Scalar, address: str, value: str) -> str:
        """Return the store of a scalar at an address."""
        name = f"_store_{scalar.name}"
        self.namespace.setdefault(name, memory.storer(scalar))
        return f"{name}({address}, {value})"

    def function_name(self, function: Function, suffix: str = "") -> str:
        """Print a function once per operator; returns its name."""
        key = (function, self.emitter, suffix)
        if key not in self.names:
            name = self.names[key] = f"_f{len(self.names)}_{function.name}"
            outer = self.lines, self.function, self.indent, self.line
            self.lines, self.function, self.indent = [], function, 0
            self.add("@_compiled")
            self.add(f"def {name}({', '.join(['_ctx', *(n for n, _ in function.parameters)])}):")
            self.indent = 1
            for parameter, kind in function.parameters:
                wanted = function.variables[parameter]
                if wanted != kind:
                    self.add(f"{parameter} = {self.convert(parameter, kind, wanted)}")
            planned = function in self.plans
            if planned:
                held = "txn_ok" if suffix == "operations" else "True"
                self.add(f"_put(_ctx + {layout.HOLDS}, _int({held}))" if self.shared else f"_ok = {held}")
                self.add(f"_put(_ctx + {layout.READS}, 0)" if self.shared else "_reads = 0")
                if self.keeps:
                    self.add(f"_put(_ctx + {layout.TAKEN}, 0)")
                    if suffix != "operations":
                        self.add(f"_put(_ctx + {layout.COPIES}, 0)")
            self.indent = 0
            self.block(function.body)
            if planned:
                self.indent = 1
                self.add(f"return {self.status()}")
            self.finished += self.lines
            self.lines, self.function, self.indent, self.line = outer
        return self.names[key]

    def new_event(self) -> list[str]:
        """Return the lines that drop the texts that the last event built."""
        return [f"_put(_ctx + {layout.SCRATCH_AT}, _get(_ctx + {layout.SCRATCH}))"] * self.work.program.makes_texts

    # --- statements

    def s_return(self, node: Node) -> None:
        """Add a `return`."""
        assert self.function is not None
        if self.function in self.plans:
            if not self.dropping:
                self.add(f"return {self.status()}")
            self.dropping = False
            return
        self.add(f"return {self.expression(node.args[0])}" if node.args else "return")

    dropping = False

    def s_drop(self, node: Node) -> None:
        """Add the drop of an input."""
        assert self.function is not None
        word = f"{self.emitter} + {layout.DROPPED}"
        self.add(f"_put({word}, _get({word}) + 1)")
        if self.function in self.plans:
            self.add("return 2")
            self.dropping = True

    def s_setfield(self, node: Node) -> None:
        """Add a store to a field of a row."""
        row, value = self.operands(node)
        if isinstance(node.data.type, Text):
            self.add(f"_text_put(_ctx, {row} + {node.data.offset}, {value})")
            return
        self.add(f"_value = {value}")
        self.add(self.store(node.data.type, f"{row} + {node.data.offset}", "_value"))

    def s_setitem(self, node: Node) -> None:
        """Add a store to an item of an array."""
        array, position, value = self.operands(node)
        kind = node.args[0].kind
        self.add(f"_value = {self.plain(node.args[2], kind.item, value)}")
        at = f"{array} + _index(_ctx, {position}, {kind.count}, {self.site(node.line)}) * {kind.item.width}"
        self.add(self.store(kind.item, at, "_value"))

    def plain(self, node: Node, scalar: Scalar, value: str) -> str:
        """Return a value in the type that its store takes."""
        return f"({value} != 0)" if scalar.name == "boolean" and node.kind == INT else value

    def s_emit(self, node: Node) -> None:
        """Add the emission of a row."""
        output, values = node.data, self.operands(node)
        for i, value in enumerate(values):
            self.add(f"_v{i} = {value}")
        stride = output.event[1]
        self.add(f"_o = _get({self.emitter} + {layout.NEXT})")
        self.add(f"if _o + {stride} > _get({self.emitter} + {layout.LIMIT}):")
        self.add(f"    _o = _more_rows({self.emitter}, {stride})")
        self.add(f"_put({self.emitter} + {layout.NEXT}, _o + {stride})")
        self.add(f"_put(_o, _get(_ctx + {layout.SEQ}))")
        for i, slot in enumerate(output.event[0].values()):
            if isinstance(slot.type, Text):
                if self.work.names_texts:
                    self.add(f"_v{i} = _batch_text(_ctx, _v{i})")
                self.add(f"_put_u32(_o + {slot.offset}, _v{i}[0] - _get(_ctx + {layout.TEXT}))")
                self.add(f"_put_u32(_o + {slot.offset + 4}, _v{i}[1])")
            elif isinstance(slot.type, Array):
                self.add(f"_copy_bytes(_o + {slot.offset}, _v{i}, {slot.size})")
            else:
                self.add(self.store(slot.type, f"_o + {slot.offset}", f"_v{i}"))

    def s_append(self, node: Node) -> None:
        """Add an append to a queue."""
        queue, *values = self.operands(node)
        self.add(f"_queue = {queue}")
        # All values before the room: one that does not fit must not leave a row behind.
        for i, value in enumerate(values):
            self.add(f"_c{i} = {value}")
        declared = node.args[0].kind.type
        widths = [scalar.width for scalar in declared.fields.values()]
        self.add(f"_at = _queue_slot(_ctx, _queue, ({', '.join(map(str, widths))},))")
        for i, slot in enumerate(node.data):
            place = f"_queue_column(_queue, {before(declared, slot.name)}) + _at * {slot.type.width}"
            if isinstance(slot.type, Text):
                self.add(f"_put({place}, _text_own(_ctx, _c{i}))")
            else:
                self.add(self.store(slot.type, place, f"_c{i}"))

    def s_key(self, node: Node) -> None:
        """Add a key of the row."""
        for i, value in enumerate(self.operands(node)):
            self.add(f"_v{i} = {value}")
        count = f"_get({self.windows} + {layout.W_KEYS_COUNT})"
        self.add(f"_k = _key_slot({self.windows}, {count}, {self.key_bytes})")
        self.add(f"_put({self.windows} + {layout.W_KEYS_COUNT}, {count} + 1)")
        for i, slot in enumerate(node.data.state[0].values()):
            at = f"_k + {layout.FIELD_BYTES * i}"
            if isinstance(slot.type, Text):
                self.add(f"_put({at}, _v{i}[0])")
                self.add(f"_put({at} + 8, _v{i}[1])")
            else:
                self.add(f"_put({at}, _int(_v{i}))")

    def status(self) -> str:
        """Return the result of a plan: the number of its reads, and in the last bit whether all conditions hold."""
        if self.shared:
            return f"(_get(_ctx + {layout.READS}) << 2) | _get(_ctx + {layout.HOLDS})"
        return "(_reads << 2) | _int(_ok)"

    def request(self) -> str:
        """Return the name of the event's row."""
        assert self.function is not None
        return next(n for n, k in self.function.parameters if isinstance(k, RowKind) and k.role == "event")

    def s_require(self, node: Node) -> None:
        """Add a condition of the transaction."""
        if self.phase == "operations":
            return
        condition, extra = node.data
        places, extra = self.operands(node), [self.expression(e) for e in extra]
        arguments = ", ".join(["_ctx", *places, self.request(), *extra])
        holds = f"{self.function_name(condition)}({arguments})"
        if self.phase == "drops":  # an operand may fail, and does so before the plan drops the event
            for value in [*places, *extra] if places else [holds]:
                self.add(f"_place = {value}")
            return
        self.add(f"if not {holds}:")
        self.add(f"    _put(_ctx + {layout.HOLDS}, 0)" if self.shared else "    _ok = False")

    def s_modify(self, node: Node) -> None:
        """Add a modification of a row."""
        function, extra = node.data
        row, *others = self.operands(node)
        self.add(f"_place = {row}")
        for i, other in enumerate(others):
            self.add(f"_other_{i} = {other}")
        for value in extra:
            self.add(f"_argument = {self.expression(value)}")
        if self.phase in ("whole", "conditions"):
            for i, other in enumerate(node.args[1:]):
                self.add(f"_keep_row(_ctx, _other_{i}, {other.kind.resolved.state[1]}, {self.result_stride})")
        if self.phase in ("whole", "operations"):
            for i in range(len(others)):
                self.add(f"_other_{i} = _taken_row(_ctx, {self.result_stride})")
            self.add(f"if _get(_ctx + {layout.HOLDS}) != 0:" if self.shared else "if _ok:")
            rows = ["_place", *(f"_other_{i}" for i in range(len(others)))]
            arguments = ", ".join(["_ctx", *rows, self.request(), *(["_argument"] if extra else [])])
            self.add(f"    {self.function_name(function)}({arguments})")

    def copies(self) -> str:
        """Return code that adds the number of slots before the results, if there may be any."""
        return f"_get(_ctx + {layout.COPIES}) + " if self.keeps else ""

    def s_read(self, node: Node) -> None:
        """Add a read of a row."""
        self.add(f"_place = {self.expression(node.args[0])}")
        if self.phase not in ("whole", "operations"):
            return
        table = node.args[0].kind.table
        resolved = self.work.program.records[table.row]
        reads = f"_get(_ctx + {layout.READS})" if self.shared else "_reads"
        self.add(f"_slot = _result_slot(_ctx, {self.copies()}{reads}, {self.result_stride})")
        for name in sorted(self.read_fields[table.index]):
            slot = resolved.state[0][name]
            if isinstance(slot.type, Scalar):
                self.add(
                    self.store(slot.type, f"_slot + {slot.offset}", self.load(slot.type, f"_place + {slot.offset}"))
                )
            else:
                self.add(f"_copy_bytes(_slot + {slot.offset}, _place + {slot.offset}, {slot.size})")
        self.add(f"_put(_ctx + {layout.READS}, {reads} + 1)" if self.shared else "_reads += 1")

    def s_for(self, node: Node) -> None:
        """Add a `for` loop over a range, or a scan."""
        assert self.function is not None
        if (queue := scans.scanned(node, self.function)) is not None:
            self.scan(node, queue)
            return
        bounds = [self.expression(b) for b in node.args[0]]
        if len(bounds) == 3 and node.args[0][2].op != "const":
            bounds[2] = f"_step(_ctx, {bounds[2]}, {self.site(node.line)})"
        if self.function.variables[node.data] == INT:
            self.add(f"for {node.data} in range({', '.join(bounds)}):")
        else:
            self.add(f"for _i in range({', '.join(bounds)}):")
            self.add(f"    {node.data} = {self.convert('_i', INT, self.function.variables[node.data])}")
        self.block(node.args[1])

    def s_split(self, node: Node) -> None:
        """Add a loop over the parts of a text."""
        self.splits += 1
        text, at, end = (f"_{name}_{self.splits}" for name in ("text", "at", "end"))
        source, *separator = node.args[0]
        self.add(f"{text} = {self.expression(source)}")
        self.add(f"{at} = {'0' if separator else f'_blank_end({text}, 0)'}")
        self.add(f"while {at} {'<=' if separator else '<'} {text}[1]:")
        find = f"_part_end({text}, {separator[0].data[0]}, {at})" if separator else f"_word_end({text}, {at})"
        self.add(f"    {end} = {find}")
        self.add(f"    {node.data} = ({text}[0] + {at}, {end} - {at})")
        self.add(f"    {at} = {f'{end} + 1' if separator else f'_blank_end({text}, {end})'}")
        self.block(node.args[1])

    def scan(self, node: Node, queue: Node) -> None:
        """Print a loop over a queue, in chunks (scans.py)."""
        self.scans += 1
        begin, end, count, any_ = (f"_{name}_{self.scans}" for name in ("begin", "end", "count", "any"))
        index, [branch] = node.data, node.args[1]
        self.add(f"{begin}, {count} = 0, _get_u32({self.expression(queue)} + 8)")
        self.add(f"while {begin} < {count}:")
        self.add(f"    {end} = min({begin} + {scans.CHUNK}, {count})")
        self.add(f"    {any_} = False")
        self.add(f"    for {index} in range({begin}, {end}):")
        self.in_search = True
        self.add(f"        {any_} = {any_} | {self.expression(branch.args[0])}")
        self.in_search = False
        self.add(f"    if {any_}:")
        self.add(f"        for {index} in range({begin}, {end}):")
        self.indent += 2
        self.block([branch])
        self.indent -= 2
        self.add(f"    {begin} = {end}")

    def e_all(self, node: Node) -> str:
        """Return a conjunction, without branches in the search of a scan."""
        return self.logical(node, " & ", False) if self.in_search else super().e_all(node)

    def e_any(self, node: Node) -> str:
        """Return a disjunction, without branches in the search of a scan."""
        return self.logical(node, " | ", True) if self.in_search else super().e_any(node)

    # --- arithmetic

    def convert(self, value: str, kind: Any, wanted: Any) -> str:
        """Return the conversion of a value to the wanted type."""
        return f"_float({value})" if wanted == FLOAT else f"_int({value})"

    def infix(self, node: Node, sign: str) -> str:
        """Return an operation without checks."""
        left, right = self.operands(node)
        return f"({left} {sign} {right})"

    def checked(self, node: Node, name: str) -> str:
        """Return the call of an operation that may fail."""
        return f"{name}(_ctx, {', '.join(self.operands(node))}, {self.site(node.line)})"

    def e_add(self, node: Node) -> str:
        """Return a sum."""
        return self.infix(node, "+")

    def e_sub(self, node: Node) -> str:
        """Return a difference."""
        return self.infix(node, "-")

    def e_mul(self, node: Node) -> str:
        """Return a product."""
        return self.infix(node, "*")

    def e_div(self, node: Node) -> str:
        """Return a quotient of doubles."""
        return self.checked(node, "_divide")

    def e_floordiv(self, node: Node) -> str:
        """Return a floor division."""
        return self.checked(node, "_floor_divide" if node.kind == INT else "_float_floor_divide")

    def e_mod(self, node: Node) -> str:
        """Return a remainder."""
        return self.checked(node, "_modulo" if node.kind == INT else "_float_modulo")

    def e_neg(self, node: Node) -> str:
        """Return a negated number."""
        return f"(-{self.expression(node.args[0])})"

    def e_abs(self, node: Node) -> str:
        """Return an absolute value."""
        return f"abs({self.expression(node.args[0])})"

    def e_shl(self, node: Node) -> str:
        """Return a left shift."""
        return self.checked(node, "_shift_left")

    def e_shr(self, node: Node) -> str:
        """Return a right shift."""
        return self.checked(node, "_shift_right")

    def e_truncate(self, node: Node) -> str:
        """Return the integer part of a double."""
        return self.checked(node, "_truncate")

    def e_fit(self, node: Node) -> str:
        """Return a check that a value fits a scalar type."""
        scalar, _ = node.data
        value = f"_fit(_ctx, {self.expression(node.args[0])}, {scalar.low}, {scalar.high}, {self.site(node.line)})"
        return f"({value} != 0)" if scalar.name == "boolean" else value

    def e_const(self, node: Node) -> str:
        """Return a literal; the least integer is no literal of Python, and a text lies in memory."""
        if node.kind == TEXT:
            self.texts.setdefault(node.data, np.frombuffer(node.data + bytes(64), np.uint8))
            return f"({self.place(self.texts[node.data])}, _int({len(node.data)}))"
        if node.kind == INT and node.data == LOW:
            return f"(-{HIGH} - 1)"
        return super().e_const(node)

    # --- rows, text, containers

    def text_at(self, row: str, offset: int) -> str:
        """Return the text in a field of a row."""
        return f"(_get(_ctx + {layout.TEXT}) + _get_u32({row} + {offset}), _get_u32({row} + {offset + 4}))"

    def e_field(self, node: Node) -> str:
        """Return a field of a row."""
        slot, kind = node.data, node.args[0].kind
        if kind.role == "queued":
            return self.of_queue(node.args[0], slot.name, slot.type)
        [row] = self.operands(node)
        if kind.role == "result":
            self.read_fields[kind.table.index].add(slot.name)
        if kind.role == "key":
            at = f"{row} + {layout.FIELD_BYTES * list(kind.slots).index(slot.name)}"
            if isinstance(slot.type, Text):
                return f"(_get({at}), _get({at} + 8))"
            return f"(_get({at}) != 0)" if slot.type.name == "boolean" else f"_get({at})"
        if isinstance(slot.type, Text):
            at = f"{row} + {slot.offset}"
            return f"_text_seen(_ctx, _get({at}))" if kind.role == "state" else self.text_at(row, slot.offset)
        return self.load(slot.type, f"{row} + {slot.offset}")

    def e_present(self, node: Node) -> str:
        """Return a field that must not be null."""
        return self.checked(node, "_present")

    def of_queue(self, node: Node, field: str, scalar: Scalar | Text) -> str:
        """Return a field of a row in a queue."""
        if isinstance(scalar, Text):
            return f"_text_seen(_ctx, {self.of_queue(node, field, i64)})"
        queue, position = self.operands(node)
        if self.in_search:
            name = f"_queue_at_{scalar.name}"
            self.namespace.setdefault(name, containers.queue_at(scalar))
            return f"{name}({queue}, {position}, {before(node.args[0].kind.type, field)})"
        name = f"_queue_item_{scalar.name}"
        self.namespace.setdefault(name, containers.queue_item(scalar))
        where = f"{before(node.args[0].kind.type, field)}, {self.site(node.line)}"
        return f"{name}(_ctx, {queue}, {position}, {where})"

    def e_part(self, node: Node) -> str:
        """Return a container or array in a row."""
        kind = node.args[0].kind
        if kind.role == "result":
            self.read_fields[kind.table.index].add(node.data.name)
        return f"({self.expression(node.args[0])} + {node.data.offset})"

    def e_item(self, node: Node) -> str:
        """Return an item of an array."""
        array, position = self.operands(node)
        kind = node.args[0].kind
        at = f"_index(_ctx, {position}, {kind.count}, {self.site(node.line)}) * {kind.item.width}"
        return self.load(kind.item, f"{array} + {at}")

    def e_constant(self, node: Node) -> str:
        """Return a side table."""
        return self.place(self.work.program.constants[node.data])

    def e_constantitem(self, node: Node) -> str:
        """Return an item of a side table."""
        values = self.work.program.constants[node.args[0].data]
        table, position = self.operands(node)
        word = f"_get({table} + 8 * _index(_ctx, {position}, {len(values)}, {self.site(node.line)}))"
        return f"_bits_float({word})" if node.kind == FLOAT else word

    def e_textitem(self, node: Node) -> str:
        """Return a byte of a text."""
        return self.checked(node, "_text_item")

    def e_textlength(self, node: Node) -> str:
        """Return the length of a text."""
        return f"{self.expression(node.args[0])}[1]"

    def e_textcompare(self, node: Node) -> str:
        """Return the comparison of two texts."""
        operands = ", ".join(self.operands(node))
        if node.data in ("==", "!="):
            return f"{'(not ' * (node.data == '!=')}_text_equal({operands}){')' * (node.data == '!=')}"
        return f"(_text_compare({operands}) {node.data} 0)"

    def e_among(self, node: Node) -> str:
        """Return whether a value is one of several."""
        value, *options = self.operands(node)
        if node.args[0].kind == TEXT:
            return f"_text_among({value}, ({', '.join(options)},))"
        return f"({value} in ({', '.join(options)},))"

    def e_contains(self, node: Node) -> str:
        """Return whether a text contains a part or a byte."""
        part, text = self.operands(node)
        if node.args[0].kind == TEXT:
            return f"(_text_search({text}, {part}, 0) >= 0)"
        return f"(_text_find(_ctx, {text}, {part}, 0, {self.site(node.line)}) >= 0)"

    def e_startswith(self, node: Node) -> str:
        """Return whether a text starts with another."""
        return f"_text_starts({', '.join(self.operands(node))})"

    def e_endswith(self, node: Node) -> str:
        """Return whether a text ends with another."""
        return f"_text_ends({', '.join(self.operands(node))})"

    def e_strip(self, node: Node) -> str:
        """Return a text without the whitespace around it."""
        return f"_text_strip({self.expression(node.args[0])})"

    def e_lower(self, node: Node) -> str:
        """Return a text with other letters."""
        low, high = (65, 90) if node.op == "lower" else (97, 122)
        return f"_text_cased(_ctx, {self.expression(node.args[0])}, {low}, {high})"

    e_upper = e_lower

    def e_concat(self, node: Node) -> str:
        """Return the concatenation of two texts."""
        return f"_text_concat(_ctx, {', '.join(self.operands(node))})"

    def e_decimal(self, node: Node) -> str:
        """Return the decimal digits of an integer."""
        return f"_text_decimal(_ctx, {self.expression(node.args[0])})"

    def e_parse(self, node: Node) -> str:
        """Return the number that a text stands for."""
        return self.checked(node, "_text_integer" if node.kind == INT else "_text_float")

    def e_slice(self, node: Node) -> str:
        """Return a slice of a text."""
        return f"_text_slice({', '.join(self.operands(node))})"

    def e_find(self, node: Node) -> str:
        """Return the search for a part or a byte in a text."""
        if node.args[1].kind == TEXT:
            return f"_text_search({', '.join(self.operands(node))})"
        return self.checked(node, "_text_find")

    def e_method(self, node: Node) -> str:
        """Return the call of a container's method."""
        box, *values = self.operands(node)
        kind = node.args[0].kind
        site = self.site(node.line)
        if isinstance(kind.type, Ring):
            return self._ring_method(node, box, values, site)
        if node.data == "length":
            return f"_get_u32({box} + 8)"
        if isinstance(kind.type, Queue):
            texts = [f"{before(kind.type, name)}," for name, of in kind.type.fields.items() if isinstance(of, Text)]
            if texts and node.data == "popleft":
                return f"_queue_popleft_texts(_ctx, {box}, ({' '.join(texts)}), {site})"
            if texts:
                return f"_queue_clear_texts(_ctx, {box}, ({' '.join(texts)}))"
            return f"_queue_popleft(_ctx, {box}, {site})" if node.data == "popleft" else f"_queue_clear({box})"
        if node.data in ("add", "put", "offer"):
            return self._change(node, box, values, site)
        return self._box_method(node, box, values, site)

    def _box_method(self, node: Node, box: str, values: list[str], site: int) -> str:
        """Return the call that reads or empties a set, map, counter or top-k."""
        kind = node.args[0].kind
        key, value = _pair(kind.type)
        texts = (isinstance(key, Text), isinstance(kind.type, Map) and isinstance(value, Text))
        match node.data:
            case "clear":
                return f"_box_clear_texts(_ctx, {box}, {texts[0]}, {texts[1]})" if any(texts) else f"_box_clear({box})"
            case "at" | "key_at" | "value_at" | "score_at":
                is_value = node.data in ("value_at", "score_at")
                of_text = "_text" * texts[0]
                word = f"_box_item{of_text}(_ctx, {box}, {values[0]}, {8 if is_value else 0}, {site})"
                return self.seen(word, value if is_value else key if texts[0] else i64)
        place = f"_box_find_text(_ctx, {box}, {values[0]})" if texts[0] else f"_box_find({box}, {values[0]})"
        match node.data:
            case "contains":
                return f"({place} >= 0)"
            case "remove" if any(texts):
                return f"_box_remove_texts(_ctx, {box}, {place}, {texts[0]}, {texts[1]})"
            case "remove":
                return f"_box_remove(_ctx, {box}, {place})"
            case "get" if isinstance(kind.type, Counter):
                return f"_box_get({box}, {place}, 0)"
            case "get" if texts[1]:
                return f"_box_get_text(_ctx, {box}, {place}, {values[1]})"
            case "get":
                return self.seen(f"_box_get({box}, {place}, {self.bits(value, values[1])})", value)
        raise AssertionError(node.data)

    def _ring_method(self, node: Node, ring: str, values: list[str], site: int) -> str:
        """Return the call of a ring's method."""
        kind, name = node.args[0].kind, node.data
        item = kind.type.item
        if name == "length":
            return f"_get_u32({ring} + 4)"
        if name == "item":
            return self.load(item, f"_ring_item(_ctx, {ring}, {values[0]}, {kind.count}, {item.width}, {site})")
        if name == "append":
            self.add(f"_ring = {ring}")
            # The value first: one that does not fit must not have made room for itself.
            self.add(f"_value = {self.fitted(item, values[0], node.args[1], site)}")
            return self.store(item, f"_ring_slot(_ring, {kind.count}, {item.width})", "_value")
        return f"_put({ring}, 0)"

    def _change(self, node: Node, box: str, values: list[str], site: int) -> str:
        """Return the call that adds to a set, map, counter or top-k."""
        kind, name = node.args[0].kind, node.data
        key, value = _pair(kind.type)
        match name:
            case "offer":
                return f"_top_offer(_ctx, {box}, {', '.join(values)}, {kind.count})"
            case "add" if isinstance(key, Text):
                add = "_set_add_text" if isinstance(kind.type, Set) else "_counter_add_text"
                return f"{add}(_ctx, {box}, {', '.join(values)})"
            case "add" if isinstance(kind.type, Set):
                return f"_set_add(_ctx, {box}, {values[0]}, {key.low}, {key.high}, {site})"
            case "add":
                return f"_counter_add(_ctx, {box}, {', '.join(values)}, {key.low}, {key.high}, {site})"
        # Both operands have their value before either of them fails to fit.
        if isinstance(key, Text) and isinstance(value, Text):
            return f"_box_put_text_at_text(_ctx, {box}, {', '.join(values)})"
        if isinstance(value, Text):
            return f"_box_put_text(_ctx, {box}, {', '.join(values)}, ({key.low}, {key.high}), {site})"
        word = i64 if value.is_float else value
        if isinstance(key, Text):
            bits, bounds = self.bits(value, values[1]), f"({word.low}, {word.high})"
            return f"_box_put_at_text(_ctx, {box}, {values[0]}, {bits}, {bounds}, {site})"
        bounds = f"({key.low}, {key.high}), ({word.low}, {word.high})"
        return f"_box_put(_ctx, {box}, {values[0]}, {self.bits(value, values[1])}, {bounds}, {site})"

    def fitted(self, scalar: Scalar, value: str, node: Node, site: int) -> str:
        """Return a value with a check that a container's type can hold it."""
        if scalar.is_float or (scalar.name == "boolean" and node.kind != INT):
            return value
        checked = f"_fit(_ctx, {value}, {scalar.low}, {scalar.high}, {site})"
        return f"({checked} != 0)" if scalar.name == "boolean" else checked

    def bits(self, scalar: Scalar, value: str) -> str:
        """Return a value as the word that a container stores."""
        return f"_int(_float_bits(_float({value})))" if scalar.is_float else f"_int({value})"

    def seen(self, word: str, scalar: Scalar | Text) -> str:
        """Return a container's word as an operator sees it."""
        if isinstance(scalar, Text):
            return f"_text_seen(_ctx, {word})"
        return f"_bits_float({word})" if scalar.is_float else f"({word} != 0)" if scalar.name == "boolean" else word

    def e_call(self, node: Node) -> str:
        """Return the call of a function; print it if it is new."""
        phase = self.phase if plans(node.data) and self.phase != "whole" else ""
        return f"{self.function_name(node.data, phase)}({', '.join(['_ctx', *self.operands(node)])})"

    # --- windows

    def e_windowstart(self, node: Node) -> str:
        """Return the start of a window."""
        return f"_get({self.expression(node.args[0])} + {layout.E_START})"

    def e_windowend(self, node: Node) -> str:
        """Return the end of a window."""
        return f"_get({self.expression(node.args[0])} + {layout.E_END})"

    def e_windowkey(self, node: Node) -> str:
        """Return the key of a window."""
        return f"({self.expression(node.args[0])} + {layout.E_KEY})"

    # --- transactions

    def e_accepted(self, node: Node) -> str:
        """Return whether the transaction was accepted."""
        assert self.function is not None
        return next(name for name, kind in self.function.parameters if kind == POST)

    def e_row(self, node: Node) -> str:
        """Return the row of a key."""
        rows, indexed = self.work.tables[node.data], self.work.indexes.get(node.data)
        key, site = self.expression(node.args[0]), self.site(node.line)
        if indexed is None:
            position = f"_index(_ctx, {key}, {len(rows)}, {site})"
        else:
            kind, most = "text" if indexed.is_text else "integer", len(rows) if indexed.inserts else 0
            position = f"_{kind}_row(_ctx, {self.place(self.work.key_maps[node.data])}, {key}, {most}, {site})"
        return f"({self.place(rows)} + {position} * {rows.dtype.itemsize})"

    def e_result(self, node: Node) -> str:
        """Return the result of a read."""
        stride = max(self.work.program.records[t.row].state[1] for t in self.work.app.tables)
        position = f"_index(_ctx, {self.expression(node.args[0])}, _get(_ctx + {layout.READS}), {self.site(node.line)})"
        return f"(_get(_ctx + {layout.RESULTS}) + ({self.copies()}{position}) * {stride})"


def before(queue: Queue, field: str) -> int:
    """Return the bytes of a row's fields before this one."""
    names = list(queue.fields)
    return sum(queue.fields[name].width for name in names[: names.index(field)])


def _pair(container: Any) -> tuple[Any, Any]:
    """The types of the two words of an item: of a set or map, a counter or top-k."""
    match container:
        case Set(item):
            return item, item
        case Map(key, value):
            return key, value
        case Counter(key):
            return key, i64
    return i64, i64
