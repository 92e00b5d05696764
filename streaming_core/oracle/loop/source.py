"""The loop of one application, printed: operators over slices of rows, unions of streams, the sink, the driver."""

from __future__ import annotations

import numpy as np

from streaming_core.data.digest import K1, K2, NULL, SEED
from streaming_core.language.operator import Operator
from streaming_core.language.record import Array, Resolved, Scalar, Slot, Text, boolean
from streaming_core.language.typed.tree import Function, within
from streaming_core.oracle.loop import layout
from streaming_core.oracle.loop.driver import Driver
from streaming_core.oracle.loop.plans import follows, has, operates, plans, reads_before, reads_others
from streaming_core.oracle.loop.windowed import Windowed


class Source(Windowed):
    """Prints the loop of one application."""

    def operator(self, i: int, operator: Operator) -> tuple[str, str]:
        """Print operator i; returns the functions that the driver calls for a slice of events, and for the flush."""
        if operator.window is not None:
            return self.windowed(i, operator, operator.window)
        program, work = self.work.program, self.work
        self.operator_name, self.emitter = operator.name, self.emitter_of(i)
        stride = program.records[operator.input].event[1]
        name, flush = f"_operator_{i}", ""
        if operator.kind == "transaction":
            body = self.transaction(operator)
        elif operator.kind == "stateless":
            function, scratch = self.function_name(program.operator(operator, "map")), ""
            body = []
            if operator.scratch is not None:
                block = np.zeros(program.records[operator.scratch].state[1] // 8, np.int64)
                address = self.place(block)
                scratch = f" {address},"
                body = [f"_wipe({address}, {block.nbytes})"]
            body.append(f"{function}(_ctx, _row,{scratch} 0)")
        else:
            function = self.function_name(program.operator(operator, "process"))
            state = program.records[operator.kept].state[1]
            before: list[str] = []
            if not operator.key:
                block = work.region.block(state)
                table = block.ctypes.data
                find = self.place(block)
            else:
                block = work.region.block(layout.MAP_BYTES)
                table, address = block.ctypes.data, self.place(block)
                slots = program.records[operator.input].event[0]
                fields = [self.key_field(slots[field]) for field in operator.key]
                work.open_map(operator, table)
                if len(fields) > 1:
                    before, key = self.packed(address, fields)
                    find = f"_text_state(_ctx, {address}, {key})"
                else:
                    [(is_text, key)] = fields
                    find = f"_{'text' if is_text else 'integer'}_state(_ctx, {address}, {key})"
            work.maps.append((operator, table))
            body = ["_text_settle(_ctx)"] if program.records[operator.kept].keeps_texts else []
            body += [*before, f"{function}(_ctx, _row, {find}, 0)"]
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
            (2, f"_put(_ctx + {layout.SEQ}, _get(_row))", 0),
            *((2, line, 0) for line in self.new_event()),
            *((2, line, 0) for line in body),
        ]
        return name, flush

    def key_field(self, slot: Slot) -> tuple[bool, str]:
        """Return whether a field of a key is a text, and the value that it has in a row."""
        if isinstance(slot.type, Text):
            return True, self.text_at("_row", slot.offset)
        assert isinstance(slot.type, Scalar)  # Stream.key_by
        return False, f"_int({self.load(slot.type, f'_row + {slot.offset}')})"

    def packed(self, table: str, fields: list[tuple[bool, str]]) -> tuple[list[str], str]:
        """Print the packing of a key of several fields; returns the lines, and the key as a text."""
        names = [f"_key_{number}" for number in range(len(fields))]
        sizes = (f"2 * {name}[1] + 1" if is_text else "8" for name, (is_text, _) in zip(names, fields, strict=True))
        lines = [f"{name} = {value}" for name, (_, value) in zip(names, fields, strict=True)]
        lines += [f"_begin = _packed_room({table}, {' + '.join(sizes)})", "_at = _begin"]
        for name, (is_text, _) in zip(names, fields, strict=True):
            lines.append(f"_at = _pack_{'text' if is_text else 'integer'}(_at, {name})")
        return lines, "(_begin, _at - _begin)"

    def transaction(self, operator: Operator) -> list[str]:
        """Print a transaction; returns the lines for one event.

        Conditions read the state before the event. Then follow operations in program order, and post-processing.
        """
        program, work = self.work.program, self.work
        self.read_fields = {t.index: set() for t in work.app.tables}
        plan = program.operator(operator, "plan")
        self.keeps = has(plan, reads_others)
        post = self.function_name(program.operator(operator, "post"))
        self.result_stride = max(program.records[t.row].state[1] for t in work.app.tables)
        self.plans = [plan]
        self.shared = any(operates(n.data) for n in within(plan.body) if n.op == "call" and plans(n.data))
        lines = []
        if follows(plan.body, False, ("require", "modify", "read"), lambda node: node.op == "drop")[1]:
            self.phase = "drops"
            lines += [f"_status = {self.function_name(plan, 'drops')}(_ctx, _row, 0)", "if _status != 2:"]
        if follows(plan.body, False, ("modify", "read"), reads_before)[1]:
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
            f"        _put(_ctx + {layout.REJECTED}, _get(_ctx + {layout.REJECTED}) + 1)",
            f"    _put(_ctx + {layout.READS}, _status >> 2)",
            f"    {post}(_ctx, _row, _ok, 0)",
        ]

    def operations(self, plan: Function) -> str:
        """Print the plan without its conditions, with one more argument: whether they held."""
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

    def sink(self, output: Resolved) -> None:
        """Print the sink, which counts `sub` and hashes every output row (runtime/ABI.md, Digest)."""
        for name, value in (("_K1", int(K1)), ("_K2", int(K2)), ("_SEED", SEED), ("_HALF", 32), ("_LATE", 29)):
            self.namespace[name] = np.uint64(value)
        lines = [
            (0, "@_compiled", 0),
            (0, "def _sink(_ctx, rows, n, subs):", 0),
            (1, f"total, last, next_sub = _u64(0), _get(_ctx + {layout.LAST}), _get(_ctx + {layout.NEXT_SUB})", 0),
            (1, f"text = _get(_ctx + {layout.TEXT})", 0),
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
                    # The first two words without branches: the length of a word is unpredictable.
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
            if slot.nullable:
                lines += [
                    (2, f"null = (h ^ _u64({NULL})) * _K1", 0),
                    (2, f"h = h if {self.load(boolean, f'row + {slot.offset}')} else null ^ (null >> _HALF)", 0),
                ]
                continue
            scalar = slot.type.item if isinstance(slot.type, Array) else slot.type
            assert isinstance(scalar, Scalar)  # an output holds no container
            # The hash of a double is over its word. Arrays need a loop: they may have a million items.
            word = "_get_u64({})" if scalar.is_float else f"_u64({self.load(scalar, '{}')})"
            at, indent = f"row + {slot.offset}", 2
            if isinstance(slot.type, Array):
                lines.append((2, f"for k in range({slot.count}):", 0))
                at, indent = f"{at} + k * {scalar.width}", 3
            lines += [(indent, f"h = (h ^ {word.format(at)}) * _K1", 0), (indent, "h ^= h >> _HALF", 0)]
        lines += [
            (2, "h *= _K2", 0),
            (2, "total += h ^ (h >> _LATE)", 0),
            (1, f"_put(_ctx + {layout.LAST}, last)", 0),
            (1, f"_put(_ctx + {layout.NEXT_SUB}, next_sub)", 0),
            (1, "return total", 0),
        ]
        self.finished += lines

    def union(self, i: int, operator: Operator) -> None:
        """Print the merge of an operator's streams: by event, and within an event in the order of the streams."""
        streams = range(len(operator.inputs))
        stride = self.work.program.records[operator.input].event[1]
        emitter = self.emitter_of(len(self.work.operators) + i)
        parameters = ", ".join(f"at_{k}, n_{k}" for k in streams)
        lines: list[tuple[int, str, int]] = [
            (0, "@_compiled", 0),
            (0, f"def _union_{i}(_ctx, {parameters}):", 0),
            *((1, f"end_{k} = at_{k} + n_{k} * {stride}", 0) for k in streams),
            (1, f"while {' or '.join(f'at_{k} < end_{k}' for k in streams)}:", 0),
            (2, f"first = {layout.END_OF_TIME}", 0),
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
        """Print the loop over slices of events, and the end of the stream (driver.py)."""
        self.finished += Driver(self, calls, flushes).lines()
